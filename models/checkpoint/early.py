"""Refusals that need neither torch nor the whole file: what it is, whether its header can be true, what its pickle wants.

Importing torch takes longer than all of this. What passes here is still judged by whoever reads it.
"""

import json
import zlib
from math import prod
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.container import Container, located
from gaussport.models.checkpoint.folders import shown
from gaussport.models.checkpoint.pickle_globals import PickledGlobal, pickled_globals

_AGAIN = "download or copy it again"
_HEADER_LIMIT_BYTES = 8 << 20  # a longer one is left to the library, which reads it with less memory
_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}

# Modules of which torch.load takes some names, and decides which.
_PYTHON = ("builtins.", "__builtin__.", "_codecs.")
_LEFT_TO_TORCH = ("torch.", "collections.", "numpy.", "argparse.Namespace", "pathlib.", *_PYTHON)


def refuse_early(path: Path) -> None:
    """Raise the CheckpointError that reading the checkpoint at `path` would end with, where that can be told cheaply."""
    container, place = located(path)
    if container is Container.SAFETENSORS:
        check_header(place)
    elif container is Container.TORCH_ZIP:
        check_zip(place)
    if container in (Container.TORCH_ZIP, Container.PICKLE):
        strange = strange_globals(place)
        if strange:
            raise CheckpointError(wanted(place, strange[0]))


def check_header(path: Path) -> None:
    """The header of a safetensors file is JSON, and its tensors lie in the file, one after the other."""
    name, size = shown(path.name), path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _HEADER_LIMIT_BYTES:
            return
        try:
            header = json.loads(file.read(length))
            entries = [entry for key, entry in header.items() if key != "__metadata__"]
            places = [(str(e["dtype"]), tuple(e["shape"]), *e["data_offsets"]) for e in entries]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{name} is a damaged safetensors file, its header is none: {_AGAIN}") from error
    end = 0
    for dtype, shape, *offsets in places:
        whole = len(offsets) == 2 and all(type(number) is int and number >= 0 for number in (*offsets, *shape))
        first, last = offsets if whole else (0, 0)
        bits = _BITS.get(dtype)
        if not whole or last < first or (bits is not None and prod(shape) * bits != 8 * (last - first)):
            raise CheckpointError(
                f"{name} is a damaged safetensors file: its header has a {dtype} tensor of shape {list(shape[:8])} at bytes "
                f"{' to '.join(map(str, offsets))}: {_AGAIN}"
            )
        end = max(end, last)
    if 8 + length + end != size:
        raise CheckpointError(
            f"{name} is truncated, or its header does not describe it: it claims {8 + length + end:,} bytes and has "
            f"{size:,}: {_AGAIN}"
        )


def check_zip(path: Path) -> None:
    """The archive is whole, and unpacks to no more than it is: torch.save never compresses, a bomb does."""
    name = shown(path.name)
    try:
        with ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            names = {entry.filename.rpartition("/")[2] for entry in archive.infolist()}
    except (BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        # A zip's table of contents is its last part.
        raise CheckpointError(f"{name} is a truncated zip archive: {_AGAIN}") from None
    if "data.pkl" not in names:
        raise CheckpointError(f"{name} is a zip archive, but not one of torch.save: give the checkpoint itself")
    if "constants.pkl" in names:
        raise CheckpointError(f"{name} is a TorchScript program, not a checkpoint: save the module's state_dict()")
    if unpacked > path.stat().st_size:
        raise CheckpointError(f"{name} claims to unpack to {unpacked:,} bytes, more than it holds: save it with torch.save")


def strange_globals(path: Path) -> list[PickledGlobal]:
    """What the pickle at `path` would import and torch certainly does not."""
    try:
        return [found for found in pickled_globals(path) if not found.name.startswith(_LEFT_TO_TORCH)]
    except (
        OSError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        EOFError,
        zlib.error,
    ):  # damage, which whoever reads it names
        return []


def wanted(path: Path, what: PickledGlobal) -> str:
    """The sentence for a pickle that brings more than data."""
    field = f"; it is under the key {what.field!r}" if what.field else ""
    return (
        f"{shown(path.name)} is a pickle that wants to use {what.name}, and nothing that a checkpoint brings is run{field}: "
        "save it again without that, with tensors, numbers, strings, lists and dicts only"
    )
