"""Builds `libgaussport_plugins.so` from the C++ beside this file, or finds the one that was built from the same sources.

Needs cmake and a C++17 compiler; neither nvcc nor a GPU nor TensorRT's libraries. Built libraries stay in the user's cache,
keyed by a hash of the sources, the headers' place and the compiler's version.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gaussport.errors import ExportError
from gaussport.plugins.tensorrt.headers import cuda_headers, tensorrt_headers

PLUGINS = Path(__file__).resolve().parents[1]
"""Folder of the operators; each one's `tensorrt_plugin.cpp` is compiled into the library."""

LIBRARY = "libgaussport_plugins.so"


def default_cache() -> Path:
    """$GAUSSPORT_CACHE, or `gaussport` in the user's cache folder."""
    own = os.environ.get("GAUSSPORT_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gaussport"


def build_library(cache_folder: Path | None = None) -> Path:
    """Path of the plugin library, built first if the cache has none from these sources.

    Raises:
        ExportError: cmake or a compiler or headers are missing, or the build fails; nothing half-built is kept.
    """
    return build(PLUGINS / "tensorrt" / "cpp", PLUGINS, LIBRARY, cache_folder)


def build(project: Path, sources: Path, product: str, cache_folder: Path | None = None, flags: Sequence[str] = ()) -> Path:
    """Build one product of a CMake project with the headers' folders given; see `build_library`.

    Args:
        project: folder of the CMakeLists.txt.
        sources: folder whose C++ and CMake files decide whether the product must be built again.
        flags: further words for cmake's configuration, such as ``-DGAUSSPORT_SANITIZE=ON``.
    """
    cache_root = cache_folder or default_cache()
    compiler = _compiler()
    words = [
        f"-DTENSORRT_INCLUDE_DIR={tensorrt_headers(cache_root)}",
        f"-DCUDA_INCLUDE_DIR={cuda_headers(cache_root)}",
        f"-DCMAKE_CXX_COMPILER={compiler}",
        *flags,
    ]
    target = cache_root / "libraries" / _key(sorted({project, sources}), words) / product
    if not target.is_file():
        _build(project, words, target)
    return target


def _compiler() -> str:
    for tool in ("cmake", "make"):
        if shutil.which(tool) is None:
            raise ExportError(
                f"{tool} is not installed, and the TensorRT plugins are built with it: install cmake, make and g++"
            )
    for name in filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")):
        if path := shutil.which(name):
            return path
    raise ExportError("no C++ compiler is installed, and the TensorRT plugins are built with one: install g++")


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def _key(folders: Sequence[Path], words: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    digest.update(_version(_compiler()).encode())
    for folder in folders:
        for file in sorted(path for path in folder.rglob("*") if path.suffix in {".cpp", ".h", ".txt", ".in"}):
            digest.update(f"{file.relative_to(folder)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _build(project: Path, words: Sequence[str], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
        jobs = str(len(os.sched_getaffinity(0)))
        for command in (
            ["cmake", "-S", str(project), "-B", folder, "-G", "Unix Makefiles", *words],
            ["cmake", "--build", folder, "--parallel", jobs, "--target", _target(target.name)],
        ):
            answer = subprocess.run(command, capture_output=True, text=True)
            if answer.returncode:
                log = target.parent / "build.log"
                log.write_text(answer.stdout + answer.stderr)
                lines = [line for line in (answer.stderr or answer.stdout).splitlines() if "rror" in line]
                reason = lines[0].strip() if lines else f"{' '.join(command[:2])} ended with {answer.returncode}"
                raise ExportError(f"{target.name} cannot be built: {reason} (the whole output is in {log})")
        Path(folder, target.name).replace(target)


def _target(file: str) -> str:
    return file.removeprefix("lib").removesuffix(".so")
