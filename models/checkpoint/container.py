"""Which format a file really is, by its first bytes: names lie, and a pickle must never pass for something safe."""

import re
import stat
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.folders import orbax_root, shown, the_file_in

_FORMATS = "a .safetensors file, one written by torch.save, a Flax .msgpack, or a folder of shards or of Orbax"
_PICKLE = re.compile(rb"\x80[\x02-\x05]|\([dl]p\d|[}\]]q|c[\w.]+\n\w+\n", re.DOTALL)
_HEADER_LENGTH_BYTES = 8
_HEADER_LIMIT_BYTES = 100_000_000  # the format's own limit


class Container(Enum):
    """A file format that can hold a state dict."""

    SAFETENSORS = "safetensors"
    TORCH_ZIP = "PyTorch zip archive"
    PICKLE = "pickle"
    MSGPACK = "Flax msgpack"
    INDEX = "index of shards"
    ORBAX = "Orbax folder"


def located(path: Path) -> tuple[Container, Path]:
    """The format of the checkpoint at `path`, and the file it is, or the folder for Orbax: `path` may be a folder that
    holds one.

    Raises:
        CheckpointError: as `container_of`, or the folder holds no checkpoint, or more than one.
    """
    if path.is_dir():
        folder = orbax_root(path)
        if folder is not None:
            return Container.ORBAX, folder
        path = the_file_in(path)
    return container_of(path), path


def container_of(path: Path) -> Container:
    """The format of the checkpoint file at `path`.

    Raises:
        CheckpointError: there is no such file, it is empty, or its first bytes are not those of a checkpoint; the
            message says what the file looks like.
    """
    size = _size_of_regular_file(path)
    with _opened(path) as file:
        start = file.read(512)
    if start.startswith(b"PK\x03\x04"):
        found = Container.TORCH_ZIP
    elif _PICKLE.match(start):
        found = Container.PICKLE
    elif start[_HEADER_LENGTH_BYTES : _HEADER_LENGTH_BYTES + 1] == b"{":
        found = Container.SAFETENSORS
        _check_header_length(path, start, size)
    elif _is_msgpack_of_names(start):
        found = Container.MSGPACK
    elif path.name.endswith(".index.json"):
        found = Container.INDEX
    else:
        raise CheckpointError(f"{shown(path.name)} {_appearance(start)}: give {_FORMATS}")
    if path.suffix == ".safetensors" and found is not Container.SAFETENSORS:
        raise CheckpointError(
            f"{shown(path.name)} is named .safetensors but holds a {found.value}: ask its author for a real one"
        )
    return found


def _size_of_regular_file(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {shown(path)}: check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise CheckpointError(f"the checkpoint {shown(path)} cannot be reached: {_reason(error)}") from None
    if stat.S_ISDIR(status.st_mode):
        raise CheckpointError(f"{shown(path)} is a folder: give the checkpoint file inside it")
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{shown(path)} is not a regular file: give {_FORMATS}")
    if status.st_size == 0:
        raise CheckpointError(f"{shown(path.name)} is empty (0 bytes): download or copy it again")
    return status.st_size


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise CheckpointError(f"the checkpoint {shown(path)} cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()


def _is_msgpack_of_names(start: bytes) -> bool:
    """A map whose first key is a string: what Flax writes. No pickle begins so: its second byte is a small number."""
    header = {0xDE: 3, 0xDF: 5}.get(start[0], 1 if 0x81 <= start[0] <= 0x8F else 0)
    return bool(header) and len(start) > header and (0xA0 <= start[header] <= 0xBF or start[header] in (0xD9, 0xDA, 0xDB))


def _check_header_length(path: Path, start: bytes, size: int) -> None:
    """A safetensors header must fit its file, before anyone allocates what it claims."""
    header = int.from_bytes(start[:_HEADER_LENGTH_BYTES], "little")
    if header > _HEADER_LIMIT_BYTES:
        raise CheckpointError(f"{shown(path.name)} is damaged: its safetensors header claims {header:,} bytes")
    if _HEADER_LENGTH_BYTES + header > size:
        raise CheckpointError(
            f"{shown(path.name)} is a truncated safetensors file: its header claims {header:,} bytes but the file has "
            f"{size:,}; download or copy it again"
        )


def _appearance(start: bytes) -> str:
    """What a file that is no checkpoint looks like, as the end of a sentence."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the weights it points to (run `git lfs pull`)"
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<?xml")):
        return "is an HTML page, not a checkpoint (a download that answered with an error or a log-in page)"
    if text.startswith((b"{", b"[")):
        return "is JSON text, not a checkpoint"
    return f"is not a checkpoint: it starts with the bytes {start[:8].hex(' ')}"
