"""The last look at a graph before it is written: what every model that we ship has, and what none has."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import onnx
from onnx import TensorProto

from gaussport.errors import ExportError
from gaussport.plugins import DOMAIN

_STANDARD = ("", "ai.onnx")
_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


def check_graph(model: onnx.ModelProto, opset: int, calls: Mapping[str, int]) -> None:
    """Raise an ExportError unless the model is of that opset, takes any batch, has one custom node for each of the
    module's `calls`, and nothing random, in float64 or of an unknown domain."""
    written = next(entry.version for entry in model.opset_import if entry.domain in _STANDARD)
    if written != opset:
        raise ExportError(f"the exporter wrote opset {written} instead of {opset}: choose --opset {written}")
    _check_batch(model.graph)
    found = Counter(node.op_type for node in all_nodes(model.graph.node) if node.domain == DOMAIN)
    if found != Counter(calls):
        raise ExportError(f"the module calls {_counts(calls)} but its graph has {_counts(found)}")
    for node in all_nodes(model.graph.node):
        if node.domain not in (*_STANDARD, DOMAIN):
            raise ExportError(f"{node.name} is a {node.domain}::{node.op_type}, which no runtime but its author's knows")
        if node.op_type in _RANDOM or _trains(node):
            raise ExportError(f"{node.name} is a {node.op_type} at work: the answer would differ from run to run")
    for name in doubles(model.graph):
        raise ExportError(f"{name} is float64, which is slow everywhere and missing on GPUs: use float32 in the module")


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of the graphs inside them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g.node)


def doubles(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of everything in the graph that is float64."""
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.DOUBLE:
            yield tensor.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.DOUBLE:
            yield value.name
    for node in all_nodes(graph.node):
        for attribute in node.attribute:
            casts = node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.DOUBLE
            if casts or attribute.t.data_type == TensorProto.DOUBLE:
                yield node.name


def _check_batch(graph: onnx.GraphProto) -> None:
    axes = [value.type.tensor_type.shape.dim[0] for value in (*graph.input, *graph.output)]
    symbols = [axis.dim_param for axis in axes]
    if not symbols[0] or len(set(symbols)) != 1:
        sizes = ", ".join(axis.dim_param or str(axis.dim_value) for axis in axes)
        raise ExportError(
            f"the graph's batch axes are {sizes} instead of one symbol: the module's output depends on the batch size, "
            "use x.shape[0] without int() and nothing that mixes rows"
        )


def _trains(node: onnx.NodeProto) -> bool:
    """Whether a BatchNormalization or Dropout is in training mode."""
    if node.op_type == "Dropout":
        return len(node.input) > 2 and bool(node.input[2])
    return any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "no custom operator"
