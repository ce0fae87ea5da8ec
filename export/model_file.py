"""A model and its file, or two files: the graph, and the weights beside it when they are many."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from gaussport.export.bundle.manifest import DATA_FILE, MODEL_FILE
from gaussport.export.bundle.store import Content

LIMIT_BYTES = 2**31 - 2**20
"""What one protobuf file can hold, less room for the graph itself."""

_HALF_BYTES = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.FLOAT4E2M1)
_SMALLEST_BYTES = 1024  # smaller tensors stay in the graph: shape inference and constant folding read them
_ALIGNMENT_BYTES = 4096  # a tensor begins on a page, so that a runtime may map it


@dataclass(frozen=True)
class ModelFile:
    """A model as it lies in a bundle. `beside` has the content of the files that its tensors point into, by location."""

    graph: bytes
    beside: Mapping[str, Content] = field(default_factory=dict)


def serialize(model: onnx.ModelProto) -> bytes:
    """The bytes of a model file, equal for equal models."""
    return bytes(model.SerializeToString(deterministic=True))


def write_model(model: onnx.ModelProto, folder: Path, external: bool = False) -> ModelFile:
    """Write `model.onnx`, and `model.onnx.data` with the large tensors when `external` or when one file cannot hold them.

    Returns what is on the disk then, read back: what is proved is what will be shipped. Files that are there are replaced,
    never appended to. With external data `model` points into the file afterwards.
    """
    if external or stored_bytes(model) > LIMIT_BYTES:
        _move_out(model, folder / DATA_FILE)
    (folder / MODEL_FILE).write_bytes(serialize(model))
    beside = {DATA_FILE: (folder / DATA_FILE).read_bytes()} if (folder / DATA_FILE).exists() else {}
    return ModelFile((folder / MODEL_FILE).read_bytes(), beside)


def stored_bytes(model: onnx.ModelProto) -> int:
    """How many bytes of weights the model stores, inside and outside its file."""
    return sum(tensor_bytes(tensor) for tensor in model.graph.initializer)


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """The bytes of a tensor's numbers, from its shape and type. KeyError for a type that ONNX does not know."""
    numbers = math.prod(tensor.dims)
    bits = 4 if tensor.data_type in _HALF_BYTES else 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(numbers * bits + 7) // 8


def tensor_array(tensor: onnx.TensorProto, file: ModelFile) -> NDArray[np.generic]:
    """The numbers of an initializer, wherever they lie. Offsets and lengths must have been checked before."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return onnx.numpy_helper.to_array(tensor)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    start, size = int(entries.get("offset", 0)), tensor_bytes(tensor)
    whole = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, name=tensor.name)
    whole.raw_data = bytes(memoryview(file.beside[entries["location"]])[start : start + size])
    return onnx.numpy_helper.to_array(whole)


def _move_out(model: onnx.ModelProto, path: Path) -> None:
    """Write the large tensors one behind the other, each on a page of its own, and point to them."""
    with path.open("wb") as file:
        for tensor in model.graph.initializer:
            raw = raw_bytes(tensor)
            if len(raw) < _SMALLEST_BYTES:
                continue
            file.write(bytes(-file.tell() % _ALIGNMENT_BYTES))
            place = {"location": path.name, "offset": file.tell(), "length": len(raw)}
            file.write(raw)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            del tensor.external_data[:]
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))


def raw_bytes(tensor: onnx.TensorProto) -> bytes:
    """The tensor's bytes as a file holds them, also when it keeps its numbers in a typed field."""
    if not tensor.HasField("raw_data"):
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name))
    return bytes(tensor.raw_data)
