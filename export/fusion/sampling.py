"""What a model's tensors are, found by running it: shapes at two batch sizes, and the values of those that never change.

A run answers what shape inference may not: every size, also after arithmetic on shapes, and every constant, folded by an
exporter or not.
"""

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from gaussport.errors import ExportError
from gaussport.export.fusion.indices import BATCHES, Size
from gaussport.export.session import first_line
from gaussport.onnx_runtime import onnxruntime

_FATAL = 4
_SHAPE_ONLY = ("Shape", "Size")  # what these answer does not depend on their input's values
_SUFFIX = ".its_shape"


@dataclass(frozen=True)
class Samples:
    """Sizes of each value at both batches, and the values of constants, by name."""

    shapes: dict[str, tuple[Size, ...]]
    constants: dict[str, NDArray[np.generic]]

    def shape(self, value: ir.Value) -> tuple[Size, ...] | None:
        return self.shapes.get(value.name or "")

    def constant(self, value: ir.Value) -> NDArray[np.generic] | None:
        return self.constants.get(value.name or "")


def sample(model: ir.Model) -> Samples:
    """Run a model whose one input takes any batch.

    Raises:
        ExportError: ONNX Runtime refuses the model, or it cannot run at both batches.
    """
    steady = _steady(model.graph)
    shapes: list[dict[str, tuple[int, ...]]] = []
    found: list[dict[str, NDArray[np.generic]]] = []
    for batch in BATCHES:
        values, sizes = _run(model, steady, batch)
        found.append(values)
        shapes.append(sizes)
    both = {
        name: tuple(zip(shape, shapes[1][name], strict=True))
        for name, shape in shapes[0].items()
        if len(shape) == len(shapes[1].get(name, ()))
    }
    constants = {
        name: value
        for name, value in found[0].items()
        if value.shape == found[1][name].shape and np.array_equal(value, found[1][name], equal_nan=False)
    }
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        assert value.name is not None
        constants[value.name] = value.const_value.numpy()
        both[value.name] = tuple((size, size) for size in value.const_value.shape.numpy())
    return Samples(both, constants)


def session_of(model: onnx.ModelProto, optimise: bool = False) -> onnxruntime.InferenceSession:
    """A quiet session on one thread; without optimisation every value keeps its name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no base class of their own
        raise ExportError(f"ONNX Runtime {onnxruntime.__version__} refuses the model: {first_line(error)}") from error


def _steady(graph: ir.Graph) -> set[str]:
    """Names of values that no input's numbers reach: parameters, what is made from them, and shapes."""
    moving = {value for value in graph.inputs if value.name not in graph.initializers}
    for node in graph:
        if node.op_type not in _SHAPE_ONLY and any(value in moving for value in node.inputs):
            moving.update(node.outputs)
    return {value.name for node in graph for value in node.outputs if value.name and value not in moving}


def _run(model: ir.Model, steady: set[str], batch: int) -> tuple[dict[str, NDArray[np.generic]], dict[str, tuple[int, ...]]]:
    proto = ir.to_proto(model)
    del proto.graph.output[:]
    names = [name for node in proto.graph.node for name in node.output if name]
    names += [value.name for value in proto.graph.input]
    for name in names:
        shown = name
        if name not in steady:
            shown = name + _SUFFIX
            proto.graph.node.append(onnx.helper.make_node("Shape", [name], [shown]))
        proto.graph.output.append(onnx.ValueInfoProto(name=shown))
    session = session_of(proto)
    given = session.get_inputs()[0]
    pixels = np.random.default_rng(batch).standard_normal((batch, *given.shape[1:])).astype(np.float32)
    try:
        answers = session.run(None, {given.name: pixels})
    except Exception as error:  # as above
        raise ExportError(f"the model fails at batch {batch}: {first_line(error)}") from error
    values: dict[str, NDArray[np.generic]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for output, answer in zip(session.get_outputs(), answers, strict=True):
        if output.name.endswith(_SUFFIX):
            shapes[output.name.removesuffix(_SUFFIX)] = tuple(int(size) for size in answer)
        else:
            values[output.name], shapes[output.name] = answer, np.shape(answer)
    return values, shapes
