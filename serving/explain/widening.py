"""A bfloat16 model in float32: what ONNX Runtime's CPU provider, which cannot multiply bfloat16, can run of it.

The weights are those of the bundle to the bit, since every bfloat16 number is a float32 number; only the roundings between
the steps are left out. This edits the protobuf itself, with the package that ONNX Runtime brings along: the fields named
here are known to it, and all others pass through as they are.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FLOAT, _BFLOAT16, _EXTERNAL = 1, 16, 1  # of TensorProto.DataType and DataLocation
_TYPED = ("to", "dtype")  # attributes that name an element type

# For each message of onnx.proto: field → (number, type), with `*` before what is repeated.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Model": {"graph": (7, "Graph"), "functions": (25, "*Function")},
    "Function": {"node": (7, "*Node")},
    "Graph": {
        "node": (1, "*Node"),
        "initializer": (5, "*Tensor"),
        "input": (11, "*Value"),
        "output": (12, "*Value"),
        "value_info": (13, "*Value"),
    },
    "Node": {"attribute": (5, "*Attribute")},
    "Attribute": {"name": (1, "string"), "i": (3, "int64"), "t": (5, "Tensor"), "g": (6, "Graph")},
    "Tensor": {
        "data_type": (2, "int32"),
        "int32_data": (5, "*packed"),
        "raw_data": (9, "bytes"),
        "external_data": (13, "*Entry"),
        "data_location": (14, "int32"),
    },
    "Entry": {"key": (1, "string"), "value": (2, "string")},
    "Value": {"type": (2, "Type")},
    "Type": {"tensor_type": (1, "TensorType")},
    "TensorType": {"elem_type": (1, "int32")},
}
_SCALARS = {"string": 9, "bytes": 12, "int64": 3, "int32": 5, "packed": 5}  # FieldDescriptorProto.Type


def widened(model: bytes, beside: Mapping[str, bytes]) -> bytes:
    """The model with float32 for every bfloat16; `beside` has the files that its tensors point into."""
    parsed = _model_class().FromString(model)
    _widen_nodes(parsed.graph.node, beside)
    for function in parsed.functions:
        _widen_nodes(function.node, beside)
    for tensor in parsed.graph.initializer:
        _widen_tensor(tensor, beside)
    del parsed.graph.value_info[:]
    for value in (*parsed.graph.input, *parsed.graph.output):
        if value.type.tensor_type.elem_type == _BFLOAT16:
            value.type.tensor_type.elem_type = _FLOAT
    return bytes(parsed.SerializeToString())


def _widen_nodes(nodes: Iterable[Any], beside: Mapping[str, bytes]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in _TYPED and attribute.i == _BFLOAT16:
                attribute.i = _FLOAT
            if attribute.HasField("t"):
                _widen_tensor(attribute.t, beside)
            if attribute.HasField("g"):
                _widen_nodes(attribute.g.node, beside)
                for tensor in attribute.g.initializer:
                    _widen_tensor(tensor, beside)


def _widen_tensor(tensor: Any, beside: Mapping[str, bytes]) -> None:
    if tensor.data_type != _BFLOAT16:
        return
    if tensor.data_location == _EXTERNAL:
        place = {entry.key: entry.value for entry in tensor.external_data}
        start = int(place.get("offset", 0))
        halves = np.frombuffer(beside[place["location"]][start : start + int(place["length"])], "<u2")
    elif tensor.HasField("raw_data"):
        halves = np.frombuffer(tensor.raw_data, "<u2")
    else:
        halves = np.asarray(tensor.int32_data, dtype=np.uint16)
    for field in ("int32_data", "external_data", "data_location"):
        tensor.ClearField(field)
    tensor.raw_data = (halves.astype("<u4") << 16).tobytes()  # a bfloat16 is the upper half of a float32
    tensor.data_type = _FLOAT


@cache
def _model_class() -> Any:
    """The class of ModelProto, as far as `_MESSAGES` knows it."""
    file = descriptor_pb2.FileDescriptorProto(name="gaussport/widening.proto", package="gaussport.widening")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            repeated, kind = kind.startswith("*"), kind.removeprefix("*")
            added = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in _SCALARS:
                added.type = _SCALARS[kind]
                added.options.packed = kind == "packed"
            else:
                added.type, added.type_name = 11, f".gaussport.widening.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("gaussport.widening.Model"))
