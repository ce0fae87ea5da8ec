"""One tensor that a graph takes or gives."""

from typing import Literal

from gaussport.export.bundle.record import Record


class TensorSpec(Record):
    """One input or output of the ONNX graph. A dynamic axis is its symbol, a fixed one its size."""

    name: str
    dtype: Literal["float32", "float16", "bfloat16", "int64", "int32", "bool"]
    shape: tuple[int | str, ...]
