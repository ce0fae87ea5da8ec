"""Files of torch.save, new (zip) and old (pickle): always read with weights_only, never again without it."""

import argparse
import pathlib
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.container import Container
from gaussport.models.checkpoint.contents import Stored
from gaussport.models.checkpoint.early import check_zip, strange_globals, wanted
from gaussport.models.checkpoint.folders import shown
from gaussport.models.checkpoint.pickle_globals import PickledGlobal, pickled_globals

_AGAIN = "download or copy it again"
_REFUSED = re.compile(r"(?:GLOBAL|global|class|function)\s+`?([A-Za-z_][\w.]*\.\w+)`?")

# What training scripts put beside their weights, all of it plain data: making one runs nothing that a file chooses.
_PLAIN_DATA: list[Any] = [
    argparse.Namespace,
    pathlib.PosixPath,
    np.dtype,
    np.ndarray,
    np._core.multiarray.scalar,  # type: ignore[attr-defined]
    np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    *{type(np.dtype(code)) for code in "?bBhHiIlLqQefd"},
]


def read_torch(path: Path, container: Container) -> Stored:
    """The dict in a file of torch.save.

    Raises:
        CheckpointError: the file is damaged, wants to import something, or holds something else.
    """
    if container is Container.TORCH_ZIP:
        check_zip(path)
    content = _load(path)
    if not isinstance(content, Mapping):
        raise CheckpointError(
            f"{shown(path.name)} holds a {type(content).__name__}, not a dict of tensors: save the model's state_dict()"
        )
    words = "torch.save, zip" if container is Container.TORCH_ZIP else "torch.save, old format"
    return Stored(content, content, words, path.stat().st_size)


def _load(path: Path) -> object:
    name = shown(path.name)
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_PLAIN_DATA), path.open("rb") as file:
            warnings.simplefilter("ignore")  # about pickle protocols, before the refusal
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's own text advises turning its protection off: none of it is passed on but the name.
        raise CheckpointError(_refusal(path, str(error))) from None
    except Exception:  # noqa: BLE001 - EOFError, RuntimeError, KeyError, struct.error and more, by kind of damage
        raise CheckpointError(f"{name} is truncated or damaged and cannot be unpickled: {_AGAIN}") from None


def _refusal(path: Path, reason: str) -> str:
    """The sentence for a pickle that torch will not read: what it wanted, and which field brings it."""
    strange = strange_globals(path)
    said = _REFUSED.search(reason)
    if said:
        named = [found for found in pickled_globals(path) if found.name == said[1]]
        return wanted(path, (named or [PickledGlobal(said[1], None)])[0])
    if strange:
        return wanted(path, strange[0])
    return f"{shown(path.name)} is a pickle that holds more than tensors, or is damaged: save it with torch.save"
