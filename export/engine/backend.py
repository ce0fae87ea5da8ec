"""TensorRT or TensorRT-RTX as one thing: the module, its version, and the little in which the two differ.

Import this in the worker process only; `installed` looks without importing.
"""

import importlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from gaussport.errors import EngineError
from gaussport.export.bundle.engines import BUILDERS

MODULES = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
INSTALL = {"tensorrt": "pip install 'gaussport[gpu]'", "tensorrt-rtx": "pip install 'gaussport[rtx]'"}
OLDEST = (10, 13)
"""The first TensorRT whose parser takes plugins for nodes of a domain of their own in strongly typed networks."""


def check_installed(builder: str) -> None:
    """Raise an EngineError when the builder's Python package is not there."""
    if find_spec(MODULES[builder]) is None:
        raise EngineError(f"{BUILDERS[builder]} is not installed: {INSTALL[builder]}")


def installed_version(builder: str) -> str | None:
    """The version of the installed package, without importing it; None when there is none."""
    prefix = MODULES[builder].replace("_", "-")
    names = {prefix, f"{prefix}-cu12", f"{prefix}-cu13"}
    if find_spec(MODULES[builder]) is None:
        return None
    for distribution in distributions():
        try:
            name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        except (KeyError, PackageNotFoundError):
            continue
        if name in names:
            return str(distribution.version)
    return "unknown"


def soname_links(builder: str) -> dict[str, Path]:
    """Library names that the package opens but does not ship, and the files they mean.

    TensorRT-RTX 1.7's wheels lack the unversioned name, and the library aborts the process over it at its first plugin.
    """
    if builder != "tensorrt-rtx":
        return {}
    spec = find_spec("tensorrt_rtx_libs")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    found = {}
    for library in (path for folder in folders for path in sorted(folder.glob("lib*.so.*"))):
        name = library.name.partition(".so.")[0] + ".so"
        if not (library.parent / name).exists():
            found[name] = library
    return found


@dataclass(frozen=True)
class Backend:
    """The imported builder."""

    builder: str
    trt: ModuleType

    @classmethod
    def load(cls, builder: str) -> "Backend":
        """Import the module. EngineError when it is missing, cannot be loaded, or is too old."""
        check_installed(builder)
        try:
            backend = cls(builder, importlib.import_module(MODULES[builder]))
        except (ImportError, OSError) as error:
            raise EngineError(f"{BUILDERS[builder]} is installed but cannot be loaded: {error}") from error
        numbers = tuple(int(number) for number in backend.version.split(".")[:2])
        if builder == "tensorrt" and numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise EngineError(f"TensorRT {backend.version} is too old: install {oldest} or later, {INSTALL[builder]}")
        return backend

    @property
    def version(self) -> str:
        return str(self.trt.__version__)

    def strongly_typed(self) -> int:
        """The creation flags of a network whose layers have the types that the graph states; all of 11's are."""
        flag = getattr(self.trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        return 0 if flag is None else 1 << int(flag)

    def aim(self, config: Any, architecture: int) -> None:
        """Let RTX build for that architecture; TensorRT builds for the GPU that it runs on."""
        if self.builder == "tensorrt-rtx":
            target = getattr(self.trt.ComputeCapability, f"SM{architecture}", None)
            if target is None:
                raise EngineError(f"TensorRT-RTX {self.version} does not know sm_{architecture}")
            config.num_compute_capabilities = 1
            config.set_compute_capability(target, 0)
