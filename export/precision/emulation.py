"""A narrow graph as a GPU computes it, run by float32 kernels: every narrow tensor is rounded where it is made.

ONNX Runtime's CPU kernels keep wide numbers between the nodes of a float16 graph and have none for most of bfloat16, so
its answers alone would hide an overflow, or not come at all. Tensor cores multiply narrow numbers, add in float32 and
round the sum once: so does this model.
"""

from collections.abc import Iterator

import onnx
import onnx.shape_inference
from onnx import TensorProto

NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def is_narrow(model: onnx.ModelProto) -> bool:
    """Whether the graph stores or computes anything in a format that `emulated` would round to."""
    stored = any(tensor.data_type in NARROW for tensor in model.graph.initializer)
    return stored or any(narrow_to(node) is not None for node in model.graph.node)


def emulated(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with float32 arithmetic and explicit roundings. Input and output keep their types."""
    types = value_types(model)
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    graph = wide.graph
    nodes = list(graph.node)
    del graph.node[:], graph.value_info[:]
    for tensor in graph.initializer:
        if tensor.data_type in NARROW:
            name, tensor.name = tensor.name, f"{tensor.name}.narrow"
            graph.node.append(_cast(tensor.name, TensorProto.FLOAT, name))
    for value in graph.input:
        if value.type.tensor_type.elem_type in NARROW:
            name, value.name = value.name, f"{value.name}.narrow"
            graph.node.append(_cast(value.name, TensorProto.FLOAT, name))
    for node in nodes:
        graph.node.extend(_rounding(node, types))
    for value in graph.output:
        if value.type.tensor_type.elem_type in NARROW:
            name, value.name = value.name, f"{value.name}.out"
            graph.node.append(_cast(name, value.type.tensor_type.elem_type, value.name))
    return wide


def value_types(model: onnx.ModelProto) -> dict[str, int]:
    """The element type of every tensor of the graph, by name."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values} | {
        tensor.name: tensor.data_type for tensor in graph.initializer
    }


def narrow_to(node: onnx.NodeProto) -> int | None:
    """The narrow type that a Cast rounds to; None for any other node."""
    if node.op_type != "Cast" or node.domain not in ("", "ai.onnx"):
        return None
    to = next(int(attribute.i) for attribute in node.attribute if attribute.name == "to")
    return to if to in NARROW else None


def _rounding(node: onnx.NodeProto, types: dict[str, int]) -> Iterator[onnx.NodeProto]:
    """The node, and what rounds each narrow output; a Cast that narrows is the rounding itself."""
    after = []
    is_cast = narrow_to(node) is not None
    for index, name in enumerate(node.output):
        to = types.get(name)
        if not name or to not in NARROW:
            continue
        narrow = f"{name}.narrow"
        if is_cast:
            node.output[index] = narrow
        else:
            node.output[index] = f"{name}.exact"
            after.append(_cast(node.output[index], to, narrow))
        after.append(_cast(narrow, TensorProto.FLOAT, name))
    yield node
    yield from after


def _cast(source: str, to: int, result: str) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [source], [result], name=f"{result}/rounding", to=to)
