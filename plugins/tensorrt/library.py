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
    project = PLUGINS / "tensorrt" / "cpp"
    return build(project, [PLUGINS], [LIBRARY], cache_folder) / LIBRARY


def build(
    project: Path,
    sources: Sequence[Path],
    products: Sequence[str],
    cache_folder: Path | None = None,
    flags: Sequence[str] = (),
) -> Path:
    """Build products of a CMake project, with the headers' folders given, and return the folder that holds them.

    Args:
        project: folder of the CMakeLists.txt.
        sources: folders whose C++ and CMake files decide whether the products must be built again.
        products: names of the files to keep; all are made, or none.
        flags: further words for cmake's configuration, such as ``-DGAUSSPORT_SANITIZE=ON``.
    """
    cache_root = cache_folder or default_cache()
    words = [
        f"-DTENSORRT_INCLUDE_DIR={tensorrt_headers(cache_root)}",
        f"-DCUDA_INCLUDE_DIR={cuda_headers(cache_root)}",
        f"-DCMAKE_CXX_COMPILER={_compiler()}",
        *flags,
    ]
    target = cache_root / "libraries" / _key(sources, [*words, *products])
    if not target.is_dir():
        _build(project, words, products, target)
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


def _build(project: Path, words: Sequence[str], products: Sequence[str], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    jobs = str(len(os.sched_getaffinity(0)))
    targets = [product.removeprefix("lib").removesuffix(".so") for product in products]
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
        for command in (
            ["cmake", "-S", str(project), "-B", folder, "-G", "Unix Makefiles", *words],
            ["cmake", "--build", folder, "--parallel", jobs, "--target", *targets],
        ):
            answer = subprocess.run(command, capture_output=True, text=True)
            if answer.returncode:
                raise ExportError(_failure(command, answer, target.with_suffix(".log")))
        kept = Path(folder, "kept")
        kept.mkdir()
        for product in products:
            Path(folder, product).replace(kept / product)
        try:
            kept.rename(target)
        except OSError:  # another process was first
            if not target.is_dir():
                raise


def _failure(command: Sequence[str], answer: "subprocess.CompletedProcess[str]", log: Path) -> str:
    log.write_text(answer.stdout + answer.stderr)
    lines = [line.strip() for line in (answer.stderr or answer.stdout).splitlines() if "error" in line.lower()]
    reason = lines[0] if lines else f"{' '.join(command[:2])} ended with {answer.returncode}"
    return f"the TensorRT plugins cannot be built: {reason} (the whole output is in {log})"
