"""Is a model about as large as its parameters, and if not, what grew? Folding may write tables that shapes imply."""

import math
from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto, helper

from gaussport.export.model_file import stored_bytes, tensor_bytes
from gaussport.export.passes.initializer_names import TRANSPOSED

ALLOWED = 1.2
"""How much larger than the parameters a model may be before its report says what grew."""
_NAMED = 3


def size_said(model: onnx.ModelProto, total: int, shapes: Mapping[str, Sequence[int]]) -> str:
    """The model's `total` bytes beside those of its parameters, whose shapes are given by PyTorch's names, each as wide as
    the model stores it; and the largest other tensors when it is more than a fifth larger."""
    widths = {t.name.removesuffix(TRANSPOSED): _width(t) for t in model.graph.initializer}
    parameters = sum(math.prod(shape) * widths.get(name, 4) for name, shape in shapes.items())
    if not parameters:
        return f"{total:,} bytes, and the module has no parameters"
    said = f"{total:,} bytes, {total / parameters:.2f} times the parameters' {parameters:,}"
    if total <= ALLOWED * parameters:
        return said
    others = [t for t in model.graph.initializer if t.name.removesuffix(TRANSPOSED) not in shapes]
    largest = sorted(others, key=tensor_bytes, reverse=True)[:_NAMED]
    grew = [f"the graph itself ({total - stored_bytes(model):,})", *(f"{t.name} ({tensor_bytes(t):,})" for t in largest)]
    return f"{said}: beside them are {', '.join(grew)}"


def _width(tensor: TensorProto) -> int:
    """Bytes of one of the tensor's numbers."""
    return int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
