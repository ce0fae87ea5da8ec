"""Which format a file really is, by its first bytes: names lie, and a pickle must never pass for something safe."""

import stat
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from gaussport.errors import CheckpointError

_FORMATS = "a .safetensors file or one written by torch.save"
_HEADER_LENGTH_BYTES = 8
_HEADER_LIMIT_BYTES = 100_000_000  # the format's own limit


class Container(Enum):
    """A file format that can hold a state dict."""

    SAFETENSORS = "safetensors"
    TORCH_ZIP = "PyTorch zip archive"
    PICKLE = "pickle"


def container_of(path: Path) -> Container:
    """The format of the checkpoint at `path`.

    Raises:
        CheckpointError: there is no such file, it is empty, or its first bytes are not those of a checkpoint; the
            message says what the file looks like.
    """
    size = _size_of_regular_file(path)
    with _opened(path) as file:
        start = file.read(512)
    if start.startswith(b"PK\x03\x04"):
        found = Container.TORCH_ZIP
    elif start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        found = Container.PICKLE
    elif start[_HEADER_LENGTH_BYTES : _HEADER_LENGTH_BYTES + 1] == b"{":
        found = Container.SAFETENSORS
        _check_header_length(path, start, size)
    else:
        raise CheckpointError(f"{path.name} {_appearance(start)}: give {_FORMATS}")
    if path.suffix == ".safetensors" and found is not Container.SAFETENSORS:
        raise CheckpointError(f"{path.name} is named .safetensors but holds a {found.value}: ask its author for a real one")
    return found


def _size_of_regular_file(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}: check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise CheckpointError(f"the checkpoint {path} cannot be reached: {_reason(error)}") from None
    if stat.S_ISDIR(status.st_mode):
        raise CheckpointError(f"{path} is a folder: give the checkpoint file inside it")
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path} is not a regular file: give {_FORMATS}")
    if status.st_size == 0:
        raise CheckpointError(f"{path.name} is empty (0 bytes): download or copy it again")
    return status.st_size


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()


def _check_header_length(path: Path, start: bytes, size: int) -> None:
    """A safetensors header must fit its file, before anyone allocates what it claims."""
    header = int.from_bytes(start[:_HEADER_LENGTH_BYTES], "little")
    if header > _HEADER_LIMIT_BYTES:
        raise CheckpointError(f"{path.name} is damaged: its safetensors header claims {header:,} bytes")
    if _HEADER_LENGTH_BYTES + header > size:
        raise CheckpointError(
            f"{path.name} is a truncated safetensors file: its header claims {header:,} bytes but the file has {size:,}; "
            "download or copy it again"
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
