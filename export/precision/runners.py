"""Which ways there are here to run a model of a given precision.

fp32, int8   ONNX Runtime's CPU kernels
fp16         those, which keep wide numbers between the nodes, and the model rounded at every step, as a GPU runs it
bf16         rounded at every step only: ONNX Runtime's CPU provider has no bfloat16 MatMul, Add or Gelu
"""

import onnx

from gaussport.export.model_file import ModelFile, serialize
from gaussport.export.precision.emulation import emulated, is_narrow
from gaussport.export.session import Session

ROUNDED = "rounded at every step"
NO_BF16 = (
    "ONNX Runtime's CPU provider has no kernels that multiply bfloat16: the bundle runs on GPUs only (serve it with "
    "--provider cuda or tensorrt), and is compared here as a GPU rounds it"
)


def has_cpu_kernels(model: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime's CPU provider can run the model: it cannot compute in bfloat16."""
    return not any(tensor.data_type == onnx.TensorProto.BFLOAT16 for tensor in model.graph.initializer)


def rounding_session(file: ModelFile) -> Session:
    """A narrow model rounded at every step."""
    return Session(ModelFile(serialize(emulated(onnx.load_model_from_string(file.graph))), file.beside))


def session_of(model: onnx.ModelProto) -> Session:
    """The one way to run a model that hides least: rounded where it can be rounded."""
    return Session(serialize(emulated(model) if is_narrow(model) else model))
