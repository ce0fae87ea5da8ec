"""What exporting, kernel compilation and engine building need, looked for without importing it."""

import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from gaussport.doctor.finding import Finding
from gaussport.gpu import Driver

_EXPORT = ("torch", "onnx", "onnxscript", "onnx-graphsurgeon", "safetensors")
_TOOLS = (("cmake", ("cmake",)), ("make", ("make",)), ("C++ compiler", ("g++", "c++", "clang++")))


def exporting() -> Iterator[Finding]:
    """Whether checkpoints can become bundles here."""
    found = {name: _version(name) for name in _EXPORT}
    missing = [name for name, number in found.items() if number is None]
    if missing:
        yield Finding("building", "gaussport export", "no", f"{', '.join(missing)} missing: pip install 'gaussport[export]'")
    else:
        yield Finding("building", "gaussport export", "ok", ", ".join(f"{name} {number}" for name, number in found.items()))


def kernels() -> Iterator[Finding]:
    """Whether our GPU kernels can be compiled and the plugin library built."""
    triton = _version("triton")
    if triton is None:
        text = "triton is not installed: pip install triton, or build with --without-plugins"
        yield Finding("building", "GPU kernels", "no", text)
    else:
        yield Finding("building", "GPU kernels", "ok", f"triton {triton} compiles them; no GPU is needed for that")
    lacking = [name for name, choices in _TOOLS if not any(map(shutil.which, choices))]
    if lacking:
        text = f"{', '.join(lacking)} missing: install cmake, make and g++"
        yield Finding("building", "plugin library", "no", text)
    else:
        yield Finding("building", "plugin library", "ok", "cmake and a C++ compiler can build it")


def builders(found: Driver) -> Iterator[Finding]:
    """Whether engines can be built here, and for which GPUs."""
    from gaussport.export.bundle.engines import BUILDERS
    from gaussport.export.engine.architectures import RTX_ARCHITECTURES, listed
    from gaussport.export.engine.backend import INSTALL, installed_version

    for builder, name in BUILDERS.items():
        number, subject = installed_version(builder), f"build-engine {builder}"
        if number is None:
            yield Finding("building", subject, "no", f"{name} is not installed: {INSTALL[builder]}")
        elif builder == "tensorrt-rtx":
            text = f"{name} {number} builds for {listed(RTX_ARCHITECTURES)}, with or without a GPU"
            yield Finding("building", subject, "ok", text)
        elif found.gpus:
            yield Finding("building", subject, "ok", f"{name} {number} builds for sm_{found.gpus[0].architecture}")
        else:
            yield Finding("building", subject, "no", f"{name} {number} needs the GPU that it builds for: {found.fault}")


def _version(name: str) -> str | None:
    if find_spec(name.replace("-", "_")) is None:
        return None
    try:
        return version(name)
    except PackageNotFoundError:
        return "of unknown version"
