"""Folders of Orbax, JAX's checkpoints: a tree of names in `_METADATA`, and an array of Zarr for each, together in one
OCDBT store or apart. Read with TensorStore; JAX is not needed. They hold data only: nothing in them can run."""

import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore
import torch
from torch import Tensor

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.contents import Stored
from gaussport.models.checkpoint.folders import shown

_METADATA = "_METADATA"
_LIMIT_BYTES = 64 << 20
_LEAST_PART = 1 / 1000  # of its size that an array takes on the disk; one that is all zeros is stored by its shape alone
_SMALL_BYTES = 64 << 20
_NOT_WEIGHTS = ("opt", "rng")  # an optimiser's state may be as large as three models


def read_orbax(folder: Path) -> Stored:
    """The tree of arrays in the folder, without the optimiser's.

    Raises:
        CheckpointError: a part is missing or damaged, or arrays claim more than the folder can hold.
    """
    name = shown(folder.name)
    metadata = _metadata(folder, name)
    on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    content: dict[str, Any] = {}
    claimed = 0
    for keys in _arrays(metadata, name):
        array = _opened(folder, keys, metadata, name)
        claimed += prod(array.shape) * array.dtype.numpy_dtype.itemsize
        if claimed * _LEAST_PART > on_disk and claimed > _SMALL_BYTES:
            raise CheckpointError(f"the arrays of {name} claim {claimed:,} bytes but the folder has only {on_disk:,}")
        _put(content, keys, _tensor(array, keys, name))
    form = "OCDBT" if metadata.get("use_ocdbt") else "one folder an array"
    return Stored(content, content, f"Orbax, {form}", max(claimed, on_disk), flax=True)


def _metadata(folder: Path, name: str) -> Mapping[str, Any]:
    path = folder / _METADATA
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            raise CheckpointError(f"{_METADATA} of {name} is larger than {_LIMIT_BYTES >> 20} MiB: copy the folder again")
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{name} has no {_METADATA} that can be read: copy the whole folder again") from None
    if not isinstance(document, dict) or not isinstance(document.get("tree_metadata"), dict):
        raise CheckpointError(f"{_METADATA} of {name} names no tree of arrays: write it again with a recent Orbax")
    return document


def _arrays(metadata: Mapping[str, Any], name: str) -> Iterator[tuple[str, ...]]:
    """The keys that lead to each array."""
    for entry in metadata["tree_metadata"].values():
        try:
            keys = tuple(str(part["key"]) for part in entry["key_metadata"])
            kind = str(entry["value_metadata"]["value_type"])
        except (KeyError, TypeError):
            raise CheckpointError(f"{_METADATA} of {name} has an entry without its keys: copy the folder again") from None
        if not keys or any("/" in key or key in ("", ".", "..") for key in keys):
            raise CheckpointError(f"{_METADATA} of {name} has the keys {list(keys)}, which lead outside it: do not use it")
        if "rray" in kind and not keys[0].lower().startswith(_NOT_WEIGHTS):
            yield keys


def _opened(folder: Path, keys: tuple[str, ...], metadata: Mapping[str, Any], name: str) -> Any:
    place = ".".join(keys)
    here = {"driver": "file", "path": f"{folder}/"}
    store: dict[str, Any] = {**here, "path": f"{folder}/{place}/"}
    if metadata.get("use_ocdbt"):
        store = {"driver": "ocdbt", "base": here, "path": f"{place}/"}
    spec = {"driver": "zarr3" if metadata.get("use_zarr3") else "zarr", "kvstore": store}
    try:
        return tensorstore.open(spec, open=True, read=True).result()
    except (ValueError, OSError, RuntimeError):
        raise CheckpointError(f"the array {place} of {name} is missing or damaged: copy the whole folder again") from None


def _tensor(array: Any, keys: tuple[str, ...], name: str) -> Tensor:
    try:
        numbers = np.asarray(array.read().result())
    except (ValueError, OSError, RuntimeError):
        raise CheckpointError(f"the array {'.'.join(keys)} of {name} is damaged: copy the whole folder again") from None
    if numbers.dtype.name == "bfloat16":
        return torch.from_numpy(numbers.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(numbers))


def _put(tree: dict[str, Any], keys: tuple[str, ...], tensor: Tensor) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
    tree[keys[-1]] = tensor
