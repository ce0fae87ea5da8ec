"""What in a departing layer is to blame: a weight, a cast, a node that is not what the exporter writes.

The region of suspicion is every node between the departing value and those that agree. Its weights are held against the
checkpoint's, its casts against the range of their type, its nodes and constants against a new export of the checkpoint.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from gaussport.export.inputs import Inputs
from gaussport.export.model_file import ModelFile, tensor_array
from gaussport.export.passes.initializer_names import TRANSPOSED
from gaussport.export.verification.bisection import Departure, graph_values
from gaussport.export.verification.layers import graph_layers

Arrays = Mapping[str, NDArray[np.generic]]

_HALVES: Mapping[int, tuple[str, float]] = {
    TensorProto.FLOAT16: ("float16", 65504.0),
    TensorProto.BFLOAT16: ("bfloat16", 3.3895314e38),
}
"""The narrow formats: their names, and the largest number that each holds."""


def region(graph: onnx.GraphProto, value: str, agreeing: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that `value` is made by, up to the values that agree, in the graph's order."""
    maker = {output: node for node in graph.node for output in node.output}
    stop, waiting, found = set(agreeing) - {value}, [value], set()
    while waiting:
        name = waiting.pop()
        node = maker.get(name)
        if name in stop or node is None or id(node) in found:
            continue
        found.add(id(node))
        waiting += node.input
    return [node for node in graph.node if id(node) in found]


def suspects(
    departure: Departure,
    model: onnx.ModelProto,
    file: ModelFile,
    parameters: Arrays,
    fresh: onnx.ModelProto | None,
    inputs: Inputs,
) -> list[str]:
    """What is wrong between the last values that agree and the departing one, each as half a sentence; may be empty.

    `parameters` are the checkpoint's by name; `fresh` is a new export of it, when one can be made.
    """
    layers = graph_layers(model.graph)
    nodes = region(model.graph, departure.value, (layers[name] for name in departure.agreeing))
    path, operand, _ = departure.layer.partition(", ")
    if operand:  # that the operator reads another value than it should is no fault of the nodes before it
        nodes += [node for node in model.graph.node if node.name == path and node not in nodes]
    names = {name for node in nodes for name in node.input} | {departure.value}
    stored = {t.name: tensor_array(t, file) for t in model.graph.initializer if t.name in names}
    blamed = [*_weights(stored, parameters), *_casts(nodes, model, file, inputs)]
    if fresh is not None:
        blamed += _against(fresh, model, nodes, stored, blamed, parameters)
    return blamed


def not_finite_inputs(node: onnx.NodeProto, model: onnx.ModelProto, file: ModelFile) -> str | None:
    """Which stored tensor that the node reads is not finite, if one is."""
    for tensor in model.graph.initializer:
        if tensor.name in node.input:
            numbers = tensor_array(tensor, file).astype(np.float64)
            bad = int(np.count_nonzero(~np.isfinite(numbers)))
            if bad:
                return f"the weight {tensor.name}, {bad} of whose {numbers.size} numbers are NaN or infinite"
    return None


def _weights(stored: Arrays, parameters: Arrays) -> Iterator[str]:
    for name, found in stored.items():
        parameter = parameters.get(name.removesuffix(TRANSPOSED))
        if parameter is not None:
            expected = parameter.T if name.endswith(TRANSPOSED) else parameter
            fault = difference(found, expected)
            if fault is not None:
                yield f"the weight {name} is not the checkpoint's: {fault}"


def difference(found: NDArray[np.generic], expected: NDArray[np.generic]) -> str | None:
    """In what way a stored tensor is not the one expected, or None when it is equal in its own type."""
    if found.shape != expected.shape:
        return f"its shape is {list(found.shape)}, not {list(expected.shape)}"
    wanted = expected.astype(found.dtype)
    wrong = found != wanted
    count = int(np.count_nonzero(wrong))
    if count == 0:
        return None
    share = f"{count} of {found.size} numbers differ"
    if found.ndim == 2 and found.shape[0] == found.shape[1] and np.array_equal(found, wanted.T):
        return f"{share}, it is transposed"
    if np.array_equal(found[wrong], -wanted[wrong]):
        return f"{share}, by their sign"
    if np.array_equal(found, wanted.astype(np.float16).astype(found.dtype)):
        return f"{share}, it is rounded to float16"
    if not np.isfinite(found.astype(np.float64)).all():
        return f"{share}, some are NaN or infinite"
    worst = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()
    return f"{share}, by up to {worst:.1e}"


def _casts(nodes: Sequence[onnx.NodeProto], model: onnx.ModelProto, file: ModelFile, inputs: Inputs) -> Iterator[str]:
    casts = [(node, _target(node)) for node in nodes if _target(node) in _HALVES]
    if not casts:
        return
    values = graph_values(model, file, [name for node, _ in casts for name in (node.input[0], node.output[0])], inputs)
    for node, target in casts:
        kind, limit = _HALVES[target]
        before, after = values[node.input[0]], values[node.output[0]]
        lost = int(np.count_nonzero(np.isfinite(before) & ~np.isfinite(after)))
        if lost:
            yield (
                f"the cast {node.name or node.output[0]} to {kind} overflows in {lost} numbers: they reach "
                f"{np.abs(before[np.isfinite(before)]).max():.3g} and {kind} ends at {limit:.3g}"
            )
        else:
            worst = float(np.abs(before - after).max(initial=0.0))
            yield f"the cast {node.name or node.output[0]} to {kind} changes numbers by up to {worst:.1e}"


def _target(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "to"), 0) if node.op_type == "Cast" else 0


def _against(
    fresh: onnx.ModelProto,
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    stored: Arrays,
    blamed: Sequence[str],
    parameters: Arrays,
) -> Iterator[str]:
    """What a new export of the checkpoint has otherwise: nodes by name, constants by name, function bodies, opset."""
    theirs = {node.name: node for node in fresh.graph.node}
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in fresh.graph.initializer}
    bodies = [{(f.name, f.overload): f.SerializeToString(deterministic=True) for f in m.functions} for m in (model, fresh)]
    for node in nodes:
        other = theirs.get(node.name)
        if other is None:
            yield f"{node.name or node.op_type} is a {node.op_type} that a new export does not have"
            continue
        if node.op_type != other.op_type:
            yield f"{node.name} is a {node.op_type}, in a new export a {other.op_type}"
        if list(node.input) != list(other.input):
            yield f"{node.name} reads ({', '.join(node.input)}), in a new export ({', '.join(other.input)})"
        for attribute in _attributes(node, other):
            yield f"{node.name} has another {attribute} than in a new export"
        body, expected = (functions.get((node.op_type, node.overload)) for functions in bodies)
        if body != expected:
            yield f"the function body of {node.op_type} is not that of a new export"
    for name, found in stored.items():
        known = name.removesuffix(TRANSPOSED) in parameters
        if not known and name in constants and (fault := difference(found, constants[name])) is not None:
            yield f"the constant {name} is not what the checkpoint's weights give: {fault}"
    versions = [{e.domain or "ai.onnx": e.version for e in m.opset_import} for m in (model, fresh)]
    if versions[0] != versions[1]:
        yield f"the model imports the opsets {versions[0]}, a new export {versions[1]}"


def _attributes(node: onnx.NodeProto, other: onnx.NodeProto) -> Iterator[str]:
    mine, theirs = ({a.name: a.SerializeToString(deterministic=True) for a in n.attribute} for n in (node, other))
    yield from (name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name))
