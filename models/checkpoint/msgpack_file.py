"""Flax msgpack files, as `flax.serialization.to_bytes` writes them: maps, plain values, and arrays as extension types.

The format is read with the package msgpack alone; JAX is not needed. It holds data only: nothing in it can run.
"""

from math import prod
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import torch
from torch import Tensor

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.contents import Stored
from gaussport.models.checkpoint.folders import shown

_ARRAY, _COMPLEX, _SCALAR = 1, 2, 3  # flax.serialization's extension types
_CHUNKED = "__msgpack_chunked_array__"  # an array of more than a gibibyte, in pieces


def read_msgpack(path: Path) -> Stored:
    """The tree in the Flax msgpack file at `path`.

    Raises:
        CheckpointError: the file is damaged, or an array in it is not what it claims.
    """
    name = shown(path.name)
    data = path.read_bytes()
    try:
        content = msgpack.unpackb(data, ext_hook=_extension, strict_map_key=False)
        content = _whole(content)
    except CheckpointError as error:
        raise CheckpointError(f"{name} {error}") from None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise CheckpointError(f"{name} is a truncated or damaged msgpack file ({reason}): copy it again") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{name} holds a {type(content).__name__}, not a tree of parameters: save the params")
    return Stored(content, content, "Flax msgpack", len(data), flax=True)


def _extension(kind: int, data: bytes) -> Any:
    if kind not in (_ARRAY, _SCALAR):
        raise CheckpointError("holds a complex number or an extension that Flax does not write: save the params alone")
    shape, dtype, numbers = msgpack.unpackb(data)
    array = tensor_from(tuple(shape), dtype if isinstance(dtype, str) else dtype.decode(), numbers)
    return array if kind == _ARRAY else array.item()


def tensor_from(shape: tuple[int, ...], dtype: str, numbers: bytes) -> Tensor:
    """The tensor of little-endian numbers in C order.

    Raises:
        CheckpointError: there is no such dtype, or they are not as many as the shape says. The message lacks its subject.
    """
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise CheckpointError(f"has an array of {dtype!r}, which is no dtype of weights: save float32 or bfloat16")
    if any(not isinstance(side, int) or side < 0 for side in shape) or prod(shape) * kind.itemsize != len(numbers):
        raise CheckpointError(f"has an array of shape {list(shape)} and {len(numbers)} bytes, which do not agree")
    if not numbers:
        return torch.empty(shape, dtype=kind)
    return torch.from_numpy(np.frombuffer(numbers, np.uint8).copy()).view(kind).reshape(shape)


def _whole(tree: Any) -> Any:
    """The tree with arrays in pieces put together."""
    if not isinstance(tree, dict):
        return tree
    if _CHUNKED in tree:
        shape, chunks = tree["shape"], tree["chunks"]
        pieces = torch.cat([chunks[key].flatten() for key in sorted(chunks, key=int)])
        return pieces.reshape([shape[key] for key in sorted(shape, key=int)])
    return {key: _whole(value) for key, value in tree.items()}
