"""Is the model one that ONNX's own checker accepts, of a version that runtimes know?"""

import onnx
import onnx.checker

from gaussport.errors import BundleError
from gaussport.export.model_file import serialize
from gaussport.export.opsets import HIGHEST, LOWEST
from gaussport.export.session import first_line
from gaussport.export.verification.subject import Subject
from gaussport.export.work import opset_of
from gaussport.onnx_runtime import onnxruntime


def versions_supported(subject: Subject) -> str:
    """Opset and IR version within what we and ONNX Runtime support."""
    opset, ir = opset_of(subject.model, ""), subject.model.ir_version
    if opset is None or not LOWEST <= opset <= HIGHEST:
        raise BundleError(f"the model is of opset {opset}, but supported are {LOWEST} to {HIGHEST}: export it again")
    if ir > onnx.IR_VERSION:
        raise BundleError(f"the model is of ONNX IR version {ir}, but supported are those up to {onnx.IR_VERSION}")
    return f"opset {opset} (supported {LOWEST} to {HIGHEST}), IR {ir}, ONNX Runtime {onnxruntime.__version__}"


def checker_accepts(subject: Subject) -> str:
    """onnx.checker with shape inference."""
    model = _without_the_data(subject.model) if subject.external else subject.model
    try:
        onnx.checker.check_model(serialize(model), full_check=True)
    except Exception as error:  # its exceptions share no base class of their own
        raise BundleError(f"onnx.checker refuses the model: {first_line(error)}") from error
    return f"onnx.checker {onnx.__version__}, with shape inference"


def _without_the_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs in place of its outside weights: the checker opens files by their path, refuses links, and
    looks at no numbers anyway. Where the data lie is the check `tensors`."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    outside = [t for t in copy.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    for tensor in outside:
        copy.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        copy.graph.initializer.remove(tensor)
    return copy
