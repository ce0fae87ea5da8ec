"""The number formats a graph may compute in."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx


@dataclass(frozen=True)
class Format:
    """A floating format narrower than float32, and what it is called on the command line."""

    name: str
    long_name: str
    numpy: np.dtype[np.generic]
    onnx: int
    largest: float
    """The largest finite number; what rounds beyond it becomes infinite."""


FP16 = Format("fp16", "float16", np.dtype(np.float16), onnx.TensorProto.FLOAT16, 65504.0)
BF16 = Format("bf16", "bfloat16", np.dtype(ml_dtypes.bfloat16), onnx.TensorProto.BFLOAT16, (2 - 2**-7) * 2.0**127)
FORMATS = {format.name: format for format in (FP16, BF16)}

FLOAT32 = np.dtype(np.float32)
