"""The proof of one match: the part of the graph that is replaced and the operator with its body, run side by side."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from gaussport.export.fusion.candidate import Match
from gaussport.export.fusion.sampling import Samples, session_of
from gaussport.export.fusion.verdict import RefusedError
from gaussport.export.fusion.writing import Written
from gaussport.plugins.onnx_registry import attach_bodies

TOLERANCE = 1e-5
"""Largest allowed difference, for values of order one, or of the largest answer where that is larger."""
BATCHES = (1, 2, 3, 5)
_JITTER = 0.3  # of a natural logarithm, by which parameters are moved from where the model puts them
_STAGE = 7

Arrays = Mapping[str, NDArray[np.generic]]


class Proof:
    """One match's part of the graph and the operator that may take its place, cut out between the same leaves."""

    def __init__(self, model: ir.Model, match: Match, written: Written, samples: Samples) -> None:
        self.match, self.written = match, written
        self._cut, self.leaves = _cut(model, match.value, written, samples)

    def error(self, activations: Mapping[int, Arrays]) -> float:
        """The largest relative difference over draws and batch sizes.

        `activations` gives, per batch size, what the model itself puts into the leaves. Values that are mixed or routed are
        replaced by noise, parameters are also moved at random from where the model puts them.

        Raises:
            RefusedError: the two differ by more than the tolerance, which the message states.
        """
        session = session_of(self._cut, optimise=True)
        worst = 0.0
        for batch, known in activations.items():
            for draw in range(2):
                feeds = self._draw(np.random.default_rng([batch, draw]), known, moved=draw > 0)
                old, new = (np.asarray(answer, dtype=np.float64) for answer in session.run(None, feeds))
                if old.shape != new.shape:
                    raise RefusedError(_STAGE, f"the operator answers in shape {new.shape} instead of {old.shape}")
                error = float(np.abs(old - new).max()) / max(1.0, float(np.abs(old).max()))
                worst = max(worst, error) if np.isfinite(error) else np.inf
        if not worst <= TOLERANCE:
            raise RefusedError(
                _STAGE, f"it reads as the operator, but their answers differ by {worst:.1e}, more than {TOLERANCE:.0e}"
            )
        return worst

    def _draw(self, random: np.random.Generator, known: Arrays, moved: bool) -> dict[str, NDArray[np.generic]]:
        noise = {value.name for value in self.match.noise}
        feeds = {}
        for name in self.leaves:
            array = known[name]
            if name in noise:
                array = random.standard_normal(array.shape).astype(np.float32)
            elif moved and array.dtype == np.float32:
                array = array * np.exp(_JITTER * random.standard_normal(array.shape)).astype(np.float32)
            feeds[name] = array
        return feeds


def activations_of(model: ir.Model, names: Iterable[str]) -> dict[int, dict[str, NDArray[np.generic]]]:
    """What the model puts into these values for random input, per batch size."""
    proto = ir.to_proto(model)
    del proto.graph.output[:]
    wanted = sorted(set(names))
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    session = session_of(proto)
    given = session.get_inputs()[0]
    found = {}
    for batch in BATCHES:
        random = np.random.default_rng(batch)
        pixels = random.standard_normal((batch, *given.shape[1:])).astype(np.float32)
        found[batch] = dict(zip(wanted, session.run(wanted, {given.name: pixels}), strict=True))
    return found


def _cut(model: ir.Model, value: ir.Value, written: Written, samples: Samples) -> tuple[onnx.ModelProto, Sequence[str]]:
    """A model from the leaves to both answers, and the leaves' names."""
    inside = {v for node in written.nodes for v in node.outputs} | set(written.initializers)
    leaves = {v for node in written.nodes for v in node.inputs if v is not None and v not in inside}
    leaves = {v for v in leaves if samples.constant(v) is None}
    old, constants, shaped = _upstream(value, leaves, samples)
    new = list(written.nodes)
    read_by_new = {v for node in new for v in node.inputs if v is not None and samples.constant(v) is not None}
    graph = onnx.GraphProto(name="proof")
    for v in {*constants, *read_by_new} - set(written.initializers):
        array = samples.constant(v)
        assert array is not None
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), v.name))
    for v in written.initializers:
        assert v.const_value is not None
        graph.initializer.append(onnx.numpy_helper.from_array(v.const_value.numpy(), v.name))
    named = sorted({v.name for v in (*leaves, *shaped) if v.name})
    for name in named:
        rank = len(samples.shapes[name])
        graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * rank))
    graph.node.extend(ir.to_proto(node) for node in (*old, *new))
    graph.value_info.extend(ir.to_proto(v) for node in new for v in node.outputs if v.type is not None)
    graph.output.extend(onnx.ValueInfoProto(name=v.name) for v in (value, written.output))
    proto = onnx.ModelProto(ir_version=max(model.ir_version, 10), graph=graph)
    proto.opset_import.append(onnx.helper.make_opsetid("", model.opset_imports[""]))
    attach_bodies(proto)
    return proto, named


def _upstream(
    value: ir.Value, leaves: set[ir.Value], samples: Samples
) -> tuple[list[ir.Node], set[ir.Value], set[ir.Value]]:
    """The nodes between leaves and value in order, the constants they read, and values of which only the shape is read."""
    nodes: dict[ir.Node, None] = {}
    constants: set[ir.Value] = set()
    shaped: set[ir.Value] = set()

    def visit(v: ir.Value) -> None:
        node = v.producer()
        if v in leaves:
            return
        if samples.constant(v) is not None:
            constants.add(v)
            return
        if node is None:
            shaped.add(v)
            return
        if node in nodes:
            return
        for source in node.inputs:
            if source is None:
                continue
            if node.op_type == "Shape" and source not in leaves and not _between(source, leaves, samples):
                shaped.add(source)
            else:
                visit(source)
        nodes[node] = None

    visit(value)
    return list(nodes), constants, shaped


def _between(value: ir.Value, leaves: set[ir.Value], samples: Samples) -> bool:
    """Whether a value lies downstream of a leaf, so that its shape comes from the part that is cut out."""
    seen, front = {value}, [value]
    while front:
        node = front.pop().producer()
        for source in node.inputs if node is not None else ():
            if source in leaves:
                return True
            if source is not None and source not in seen:
                seen.add(source)
                front.append(source)
    return False
