"""Look inside a model while it runs: chosen tensors become outputs."""

from collections.abc import Iterable

import onnx
from onnx import TensorProto


def tapped(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with these float32 tensors as its only outputs."""
    open_model = _copy_without_outputs(model)
    open_model.graph.output.extend(onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    return open_model


def with_peaks(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with the largest magnitude of each of these tensors as its only outputs, under the tensors' names with
    `.peak` behind; a NaN inside is a NaN outside."""
    open_model = _copy_without_outputs(model)
    for name in names:
        magnitude, peak = f"{name}.magnitude", f"{name}.peak"
        open_model.graph.node.append(onnx.helper.make_node("Abs", [name], [magnitude]))
        open_model.graph.node.append(onnx.helper.make_node("ReduceMax", [magnitude], [peak], keepdims=0))
        open_model.graph.output.append(onnx.helper.make_tensor_value_info(peak, TensorProto.FLOAT, []))
    return open_model


def _copy_without_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    return copy
