"""Tensor contents to arrays and back. JSON numbers are checked one and all, at C speed: a list of 150,000 Python numbers
costs milliseconds as it is, and numpy alone would take true for 1, "nan" for NaN and 1e39 for infinity."""

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import GaussportError
from gaussport.export.bundle.manifest import FurtherInput
from gaussport.serving.base64_text import picture_bytes
from gaussport.serving.errors import RequestError
from gaussport.serving.front_door import Pictures
from gaussport.serving.v2.datatypes import DATATYPES
from gaussport.serving.v2.request import InputTensor

_FLOAT32_LARGEST = float(np.finfo(np.float32).max)
_LENGTH = struct.Struct("<I")


def numbers(tensor: InputTensor, spec: FurtherInput) -> NDArray[Any]:
    """The content of an input beside the pictures, as rows of its shape and type; whole numbers in its range, for beyond it
    no proof ran."""
    wanted = tuple(int(axis) for axis in spec.shape[1:])
    column = not wanted and tensor.shape[1:] == (1,)  # [N, 1] for [N], as of encoded pictures
    shape = (1,) if column else wanted
    if spec.dtype == "float32":
        return pixels(tensor, shape).reshape(-1, *wanted)
    count = _count(tensor, spec.dtype, shape)
    raw, kind = tensor.raw is not None, bool if spec.dtype == "bool" else int
    values: NDArray[Any] = _raw(tensor, spec.dtype, count) if raw else _whole(tensor, count, kind)
    if values.min() < spec.low or values.max() > spec.high:
        raise _refused(f"{tensor.name} must be from {spec.low:g} to {spec.high:g}", tensor)
    return values.astype(spec.dtype, copy=False).reshape(-1, *wanted)


def pixels(tensor: InputTensor, wanted: Sequence[int]) -> NDArray[np.float32]:
    """The FP32 content as rows of shape `wanted`, finite."""
    count = _count(tensor, "float32", wanted)
    values: NDArray[Any] = _numbers(tensor, count) if tensor.raw is None else _raw(tensor, "float32", count)
    if not _finite(values) or (values.dtype != np.float32 and np.abs(values).max() > _FLOAT32_LARGEST):
        raise RequestError(f"{tensor.name} has numbers that are not finite in float32", "not_finite")
    return values.astype(np.float32, copy=False).reshape(tensor.shape)


def _finite(values: NDArray[Any]) -> bool:
    """A sum is half the price of a look at each number, which is needed only where it leaves the range."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(values.sum()) or bool(np.isfinite(values).all())


def _count(tensor: InputTensor, dtype: str, wanted: Sequence[int]) -> int:
    """How many numbers a tensor of rows of shape `wanted` announces; at least one row."""
    datatype, _ = DATATYPES[dtype]
    if tensor.datatype != datatype:
        raise _refused(f"{tensor.name} must be {datatype}", tensor)
    if len(tensor.shape) != len(wanted) + 1 or tensor.shape[1:] != tuple(wanted):
        raise _refused(f"{tensor.name} must have the shape [{', '.join(map(str, ('N', *wanted)))}]", tensor)
    if tensor.shape[0] == 0:
        raise _refused(f"{tensor.name} has no rows: send at least one", tensor)
    return math.prod(tensor.shape)


def _raw(tensor: InputTensor, dtype: str, count: int) -> NDArray[Any]:
    lies = np.dtype(DATATYPES[dtype][1])
    assert tensor.raw is not None
    if len(tensor.raw) != lies.itemsize * count:
        raise _refused(f"{tensor.name} announces {count} numbers and has {len(tensor.raw)} bytes", tensor)
    return np.frombuffer(tensor.raw, lies)


def _whole(tensor: InputTensor, count: int, kind: type) -> NDArray[np.int64]:
    level = _flat(tensor)
    if len(level) != count or not set(map(type, level)) <= {int, kind}:
        words = "true or false" if kind is bool else "whole numbers"
        raise _refused(f"the data of {tensor.name} must be {count} times {words}, flat or nested as its shape", tensor)
    try:
        return np.array(level, dtype=np.int64)
    except OverflowError:
        raise _refused(f"{tensor.name} has a number beyond 64 bits", tensor) from None


def _numbers(tensor: InputTensor, count: int) -> NDArray[np.float64]:
    level = _flat(tensor)
    kinds = set(map(type, level))
    if len(level) != count or not kinds <= {int, float}:
        raise _refused(f"the data of {tensor.name} must be {count} numbers, flat or nested as its shape", tensor)
    try:
        return np.array(level, dtype=np.float64)
    except OverflowError:
        raise RequestError(f"{tensor.name} has numbers that are not finite in float32", "not_finite") from None


def _flat(tensor: InputTensor) -> list[Any]:
    """JSON data as one list. Nested data must be nested exactly as the shape says."""
    if not isinstance(tensor.data, list):
        raise _refused(f"the data of {tensor.name} must be a list", tensor)
    level: list[Any] = tensor.data
    if not level or not isinstance(level[0], list):
        return level
    if len(level) != tensor.shape[0]:
        raise _refused(f"the data of {tensor.name} is not nested as its shape", tensor)
    for side in tensor.shape[1:]:
        if set(map(type, level)) != {list} or set(map(len, level)) != {side}:
            raise _refused(f"the data of {tensor.name} is not nested as its shape", tensor)
        level = list(chain.from_iterable(level))
    return level


def tokens(tensor: InputTensor, vocabulary: int) -> NDArray[np.int64]:
    """The INT64 content [N, length] of a model that reads text; every number one of its tokens, the padding among them."""
    if len(tensor.shape) != 2 or not tensor.shape[1]:
        raise _refused(f"{tensor.name} must have the shape [N, length], a row for each text", tensor)
    count = _count(tensor, "int64", tensor.shape[1:])
    values = _whole(tensor, count, int) if tensor.raw is None else _raw(tensor, "int64", count)
    if values.min() < 0 or values.max() >= vocabulary:
        raise _refused(f"{tensor.name} must be from 0 to {vocabulary - 1}", tensor)
    return values.astype(np.int64, copy=False).reshape(tensor.shape)


def texts(tensor: InputTensor, most: int) -> list[bytes | str]:
    """The BYTES content: one text for each row, bytes in a binary tensor and text in JSON."""
    count = _elements(tensor)
    if not 0 < count <= most:
        raise RequestError(f"{tensor.name} has {count} texts: send 1 to {most}", "too_many_texts")
    found = _flat(tensor) if tensor.raw is None else _binary_elements(tensor.raw)
    if len(found) != count:
        raise _refused(f"{tensor.name} announces {count} texts and has {len(found)}", tensor)
    if not all(isinstance(text, bytes | str) for text in found):
        raise _refused(f"the data of {tensor.name} must be texts", tensor)
    return list(found)


def pictures(tensor: InputTensor, max_images: int) -> Pictures:
    """The BYTES content: one encoded picture for each row; in JSON each is a base64 text."""
    count = _elements(tensor)
    if not 0 < count <= max_images:
        raise RequestError(f"{tensor.name} has {count} pictures: send 1 to {max_images}", "too_many_images")
    found: Pictures = _text_pictures(_flat(tensor)) if tensor.raw is None else list(_binary_elements(tensor.raw))
    if len(found) != count:
        raise _refused(f"{tensor.name} announces {count} pictures and has {len(found)}", tensor)
    return found


def _elements(tensor: InputTensor) -> int:
    """How many BYTES elements are announced, one for each row."""
    if tensor.datatype != "BYTES":
        raise _refused(f"{tensor.name} must be BYTES", tensor)
    if len(tensor.shape) not in (1, 2) or tensor.shape[1:] not in ((), (1,)):
        raise _refused(f"{tensor.name} must have the shape [N] or [N, 1]", tensor)
    return tensor.shape[0]


def _text_pictures(texts: list[Any]) -> Pictures:
    found: list[bytes | GaussportError] = []
    for text in texts:
        if not isinstance(text, str):
            raise RequestError("a picture in JSON must be a base64 text", "malformed_base64")
        found.append(picture_bytes(text))
    return found


def _binary_elements(raw: memoryview) -> list[bytes]:
    """Each element behind its length, four bytes, little-endian."""
    found: list[bytes] = []
    while len(raw):
        size = _LENGTH.unpack_from(raw)[0] if len(raw) >= _LENGTH.size else len(raw)
        raw = raw[_LENGTH.size :]
        if size > len(raw):
            raise RequestError("a BYTES element is longer than what is there", "malformed_tensor")
        found.append(bytes(raw[:size]))
        raw = raw[size:]
    return found


def packed_texts(texts: Sequence[str]) -> bytes:
    """BYTES elements in the binary form."""
    encoded = [text.encode() for text in texts]
    return b"".join(_LENGTH.pack(len(text)) + text for text in encoded)


def _refused(message: str, tensor: InputTensor) -> RequestError:
    return RequestError(f"{message} (it is {tensor.datatype[:16]} {list(tensor.shape)[:8]})", "malformed_tensor")
