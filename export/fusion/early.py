"""Refusals that need neither onnx nor torch, whose import takes longer: is the file there, and can it be a model?"""

from pathlib import Path

from gaussport.errors import ExportError

_FIELD_TYPES = (0, 2)  # all that ModelProto has: numbers, and what has a length
_LFS = b"version https://git-lfs"


def refuse_early(path: Path) -> None:
    """Raise the ExportError that reading the model at `path` would end with, where its first bytes tell."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ExportError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not start:
        raise ExportError(f"{path} is empty (0 bytes): download or copy it again")
    if start == _LFS:
        raise ExportError(f"{path} is a Git LFS pointer, not the model it points to: run `git lfs pull`")
    if start[0] & 7 not in _FIELD_TYPES:
        raise ExportError(f"{path} is not an ONNX model: give the file that an exporter wrote")
