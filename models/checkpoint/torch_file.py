"""Files of torch.save, new (zip) and old (pickle): always read with weights_only, never again without it."""

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from torch import Tensor

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.container import Container
from gaussport.models.checkpoint.contents import Stored

WEIGHT_KEYS = ("state_dict", "model", "model_state_dict")
_GLOBAL = re.compile(r"(?:GLOBAL|global|class|function)\s+`?([A-Za-z_][\w.]*\.\w+)`?")
_AGAIN = "download or copy it again"


def read_torch(path: Path, container: Container) -> Stored:
    """The state dict, and what lies beside it, in a file of torch.save.

    Raises:
        CheckpointError: the file is damaged, wants to import something, or holds no state dict.
    """
    if container is Container.TORCH_ZIP:
        _check_zip(path)
    content = _load(path)
    if not isinstance(content, Mapping):
        raise CheckpointError(
            f"{path.name} holds a {type(content).__name__}, not a dict of tensors: save the model's state_dict()"
        )
    found = [key for key in WEIGHT_KEYS if isinstance(content.get(key), Mapping)]
    if len(found) > 1:
        raise CheckpointError(f"{path.name} holds {len(found)} sets of weights, {' and '.join(found)}: keep one of them")
    weights = content[found[0]] if found else content
    return Stored(_tensors(path, weights), content if found else {})


def _check_zip(path: Path) -> None:
    """The archive is whole, and unpacks to no more than it is: torch.save never compresses, a bomb does."""
    try:
        with ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            names = {entry.filename.rpartition("/")[2] for entry in archive.infolist()}
    except (BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        # A zip's table of contents is its last part.
        raise CheckpointError(f"{path.name} is a truncated zip archive: {_AGAIN}") from None
    if "data.pkl" not in names:
        raise CheckpointError(f"{path.name} is a zip archive, but not one of torch.save: give the checkpoint itself")
    if unpacked > path.stat().st_size:
        raise CheckpointError(
            f"{path.name} claims to unpack to {unpacked:,} bytes, more than it holds: save it with torch.save"
        )


def _load(path: Path) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about TorchScript archives, and then raises
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's own text advises turning its protection off: none of it is passed on but the name.
        wanted = _GLOBAL.search(str(error))
        if wanted:
            raise CheckpointError(
                f"{path.name} is a pickle that wants to use {wanted[1]}, and nothing that a checkpoint brings is run: save "
                "it again with tensors, numbers, strings, lists and dicts only"
            ) from None
        raise CheckpointError(f"{path.name} is a pickle that holds more than tensors, or is damaged: {_AGAIN}") from None
    except Exception:  # noqa: BLE001 - EOFError, RuntimeError, KeyError, struct.error and more, by kind of damage
        raise CheckpointError(f"{path.name} is truncated or damaged and cannot be unpickled: {_AGAIN}") from None


def _tensors(path: Path, weights: Mapping[Any, Any]) -> dict[str, Tensor]:
    for name, value in weights.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(
                f"{path.name} holds {name!r} of type {type(value).__name__} where a state dict has tensors: save the "
                f"weights under one of the keys {', '.join(WEIGHT_KEYS)}"
            )
    return dict(weights)
