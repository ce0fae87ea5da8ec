"""The shared libraries of TensorRT, without its Python package: find them, load them, ask their version, add our plugins.

ONNX Runtime's providers load an engine but register no plugin library that exports IPluginV3 creators; so this does it
before the session, through the one C function that our library has for it.
"""

import contextlib
import ctypes
import io
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gaussport.errors import ServingError
from gaussport.export.bundle.engines import BUILDERS
from gaussport.onnx_runtime import onnxruntime

REGISTER = "gaussport_register_plugins"
"""`int32_t (void* (*getPluginRegistry)(), int32_t major)` of the plugin library; 0: our creators are registered."""


@dataclass(frozen=True)
class _Wheel:
    """Where pip puts a TensorRT: the package that holds its libraries, and their names in the order of loading."""

    packages: tuple[str, ...]
    libraries: tuple[str, ...]


_WHEELS = {
    "tensorrt": _Wheel(("tensorrt_libs",), ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10")),
    "tensorrt-rtx": _Wheel(
        ("onnxruntime_ep_nv_tensorrt_rtx", "tensorrt_rtx_libs"), ("libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1")
    ),
}


def preload_cuda() -> None:
    """Load CUDA and cuDNN from their wheels, where they are installed; ONNX Runtime finds system-wide ones itself."""
    with contextlib.redirect_stdout(io.StringIO()):  # what it prints is told by the session, as an error
        onnxruntime.preload_dlls()


def load_tensorrt(builder: str) -> ctypes.CDLL:
    """The loaded runtime library of `tensorrt` or `tensorrt-rtx`, from its wheel or from the system.

    Raises:
        ServingError: it is nowhere, or needs what is not there.
    """
    wheel = _WHEELS[builder]
    loaded = [_load(builder, wheel, name) for name in wheel.libraries]
    return loaded[0]


def _load(builder: str, wheel: _Wheel, name: str) -> ctypes.CDLL:
    stem = name.partition(".so.")[0]
    specs = [spec for package in wheel.packages if (spec := find_spec(package)) is not None]
    folders = [Path(folder) for spec in specs for folder in spec.submodule_search_locations or ()]
    places = [*(str(path) for folder in folders for path in sorted(folder.glob(f"{stem}.so.*"))), name]
    reason = ""
    for place in places:
        try:
            return ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            reason = str(error)
    raise ServingError(f"{BUILDERS[builder]} cannot be loaded: {reason}; install gaussport[gpu] or run gaussport doctor")


def version_of(library: ctypes.CDLL) -> str:
    """Major, minor and patch of a loaded TensorRT."""
    return ".".join(str(getattr(library, f"getInferLib{part}Version")()) for part in ("Major", "Minor", "Patch"))


def register_plugins(tensorrt: ctypes.CDLL, plugins: Path) -> None:
    """Load our plugin library into this process and its creators into TensorRT's registry; twice is harmless.

    Raises:
        ServingError: it cannot be loaded, or TensorRT refuses it.
    """
    try:
        library = ctypes.CDLL(str(plugins))
        register = getattr(library, REGISTER)
    except (OSError, AttributeError) as error:
        raise ServingError(f"the plugin library {plugins.name} cannot be loaded: {error}; build the engine again") from error
    registry = ctypes.cast(tensorrt.getPluginRegistry, ctypes.c_void_p)
    if (code := register(registry, tensorrt.getInferLibMajorVersion())) != 0:
        raise ServingError(f"TensorRT refuses the plugin library {plugins.name} (code {code}): build the engine again")
