"""The bundle's graph as TensorRT gets it: typed, constants folded, each shared weight once, plugins in place of bodies."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
import onnx.inliner
import onnx_graphsurgeon as gs

from gaussport.errors import EngineError
from gaussport.export.passes import drop_bodies, fold_constants, operate, tag_plugins
from gaussport.export.precision.casting import narrow
from gaussport.export.precision.formats import FORMATS
from gaussport.export.precision.layers import RESIDUAL
from gaussport.plugins import DOMAIN, operators

KEPT_WIDE = (RESIDUAL,)
"""The stream that blocks add to stays float32: its numbers grow with depth, and norms read small differences of them."""


@dataclass(frozen=True)
class PluginNode:
    """A custom node of the graph: its name and operator, and the shape and type of each operand."""

    name: str
    operator: str
    shapes: tuple[tuple[int | str, ...] | None, ...]
    """A dynamic axis is its symbol; None is an optional operand that is not given."""
    dtype: str
    """`float32`, `float16` or `bfloat16`."""
    mask_dtype: str | None
    """Type of the optional operand, when it is given."""
    attributes: Mapping[str, int | float]


def prepare_graph(model: onnx.ModelProto, own: str, precision: str, plugins: bool) -> onnx.ModelProto:
    """The graph to build, strongly typed in `precision`; `own` is the one that the bundle's graph has already."""
    narrowing = () if precision in (own, "fp32") else (partial(narrow, format=FORMATS[precision], keep=KEPT_WIDE),)
    passes = (fold_constants, *narrowing, share_initializers)
    if plugins:
        return operate(drop_bodies(model), *passes, tag_plugins)
    # Typed first: inside a body float32 is asked for explicitly, so that a body is as exact in any precision.
    return operate(onnx.inliner.inline_local_functions(operate(model, *passes)), share_initializers)


def share_initializers(graph: gs.Graph) -> None:
    """Let constants that are equal in type, shape and every byte be one."""
    seen: dict[tuple[str, tuple[int, ...], bytes], gs.Constant] = {}
    for node in graph.nodes:
        for index, tensor in enumerate(node.inputs):
            if isinstance(tensor, gs.Constant):
                values = np.ascontiguousarray(tensor.values)
                key = (str(tensor.dtype), values.shape, values.tobytes())
                first = seen.setdefault(key, tensor)
                if first is not tensor:
                    node.inputs[index] = first


def plugin_nodes(model: onnx.ModelProto) -> tuple[PluginNode, ...]:
    """Every custom node of a prepared graph. EngineError when a node's operands have no known shape or type."""
    values = {v.name: v.type.tensor_type for v in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    known: dict[str, tuple[tuple[int | str, ...], int]] = {
        name: (tuple(axis.dim_param or axis.dim_value for axis in tensor.shape.dim), tensor.elem_type)
        for name, tensor in values.items()
    } | {tensor.name: (tuple(tensor.dims), tensor.data_type) for tensor in model.graph.initializer}
    return tuple(_plugin_node(node, known) for node in model.graph.node if node.domain == DOMAIN)


def _plugin_node(node: onnx.NodeProto, known: Mapping[str, tuple[tuple[int | str, ...], int]]) -> PluginNode:
    missing = [name for name in node.input if name and name not in known]
    if missing:
        raise EngineError(f"the graph does not state the shape of {missing[0]}, which {node.name} reads: export it again")
    schema = next(operator for operator in operators() if operator.name == node.op_type)
    masks = [name for operand, name in zip(schema.operands, node.input, strict=False) if operand.optional and name]
    return PluginNode(
        name=node.name,
        operator=node.op_type,
        shapes=tuple(known[name][0] if name else None for name in node.input),
        dtype=_dtype(known[node.input[0]][1]),
        mask_dtype=_dtype(known[masks[0]][1]) if masks else None,
        attributes={a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name in dict(schema.attributes)},
    )


def _dtype(code: int) -> str:
    return str(onnx.helper.tensor_dtype_to_np_dtype(code).name)


def set_attributes(model: onnx.ModelProto, attributes: Mapping[str, Mapping[str, int | float | str | bytes]]) -> None:
    """Write plugin attributes to the nodes of these names, in place; those of the same name are replaced."""
    for node in model.graph.node:
        wanted = attributes.get(node.name, {})
        kept = [attribute for attribute in node.attribute if attribute.name not in wanted]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in wanted.items())
