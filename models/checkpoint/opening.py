"""From a path to what the file holds, whatever its format; and the hash that names it."""

import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.container import Container, container_of, located
from gaussport.models.checkpoint.contents import Stored
from gaussport.models.checkpoint.folders import shown
from gaussport.models.checkpoint.safetensors_file import read_safetensors
from gaussport.models.checkpoint.sharded import read_sharded, shards_of
from gaussport.models.checkpoint.torch_file import read_torch


def open_stored(path: Path) -> Stored:
    """The content of the checkpoint at `path`, a file or a folder. Nothing that it brings is run.

    Raises:
        CheckpointError: the file is missing, damaged, foreign or dangerous, or its reader is not installed.
    """
    container, place = located(path)
    if container is Container.INDEX:
        return read_sharded(place, _read_shard)
    if container is Container.ORBAX:
        return _reader("orbax_folder", "read_orbax", "tensorstore", path)(place)
    return _read_file(container, place)


def hash_of(path: Path) -> str:
    """SHA-256 of the file, or, of several files, of their names and hashes in the order of names."""
    container, place = located(path)
    if container is Container.INDEX:
        files = [place, *shards_of(place)]
    elif container is Container.ORBAX:
        files = sorted(file for file in place.rglob("*") if file.is_file())
    else:
        return _sha256(place)
    names = {file: str(file.relative_to(place if place.is_dir() else place.parent)) for file in files}
    lines = "".join(f"{_sha256(file)}  {name}\n" for file, name in names.items())
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def _read_shard(path: Path) -> Stored:
    return _read_file(container_of(path), path)


def _read_file(container: Container, path: Path) -> Stored:
    if container is Container.SAFETENSORS:
        return read_safetensors(path)
    if container is Container.MSGPACK:
        return _reader("msgpack_file", "read_msgpack", "msgpack", path)(path)
    return read_torch(path, container)


def _reader(module: str, function: str, package: str, path: Path) -> Callable[[Path], Stored]:
    """A reader whose library is an extra."""
    try:
        importlib.import_module(package)
    except ImportError:
        raise CheckpointError(
            f"{shown(path.name)} was written by JAX, which needs the package {package} to read: pip install 'gaussport[jax]'"
        ) from None
    reader: Callable[[Path], Stored] = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    return reader


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
