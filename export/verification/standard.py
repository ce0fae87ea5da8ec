"""Is the model one that ONNX's own checker accepts, of a version that runtimes know?"""

import onnx
import onnx.checker

from gaussport.errors import BundleError
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
    try:
        with subject.on_disk() as path:
            onnx.checker.check_model(subject.data if path is None else str(path), full_check=True)
    except Exception as error:  # its exceptions share no base class of their own
        raise BundleError(f"onnx.checker refuses the model: {first_line(error)}") from error
    return f"onnx.checker {onnx.__version__}, with shape inference"
