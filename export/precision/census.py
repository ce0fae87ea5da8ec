"""Read a graph's precision from the graph. What a bundle states comes from here, never from what somebody asked for."""

from collections import Counter

import onnx
from onnx import TensorProto

from gaussport.export.precision.emulation import value_types
from gaussport.export.precision.layers import LINEAR
from gaussport.plugins import DOMAIN

_NAMES: dict[int, str] = {TensorProto.FLOAT: "fp32", TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16"}
_NARROWEST = ("int8", "bf16", "fp16", "fp32")
_BYTES = (TensorProto.INT8, TensorProto.UINT8)


def census(model: onnx.ModelProto) -> dict[str, int]:
    """How many linear layers and attention operators compute in each precision, e.g. `{"fp16": 28, "fp32": 1}`."""
    types = value_types(model)
    makers = {name: node for node in model.graph.node for name in node.output}
    counts: Counter[str] = Counter()
    for node in model.graph.node:
        if node.domain == DOMAIN or (node.op_type in LINEAR and node.domain in ("", "ai.onnx")):
            integer = node.domain != DOMAIN and all(_dequantized(name, makers, types) for name in node.input[:2])
            counts["int8" if integer else _NAMES.get(types.get(node.input[0], 0), "unknown")] += 1
    return dict(counts)


def precision_of(model: onnx.ModelProto) -> str:
    """The narrowest precision that any layer computes in; `fp32` for a graph with no layers."""
    counts = census(model)
    return next((name for name in _NARROWEST if counts.get(name)), "fp32")


def _dequantized(name: str, makers: dict[str, onnx.NodeProto], types: dict[str, int]) -> bool:
    maker = makers.get(name)
    return maker is not None and maker.op_type == "DequantizeLinear" and types.get(maker.input[0]) in _BYTES
