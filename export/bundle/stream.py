"""What a bundle says of its `step.onnx`: the state that a stream has between two chunks.

The graph takes `tokens` [batch, chunk] and each part as `state.NAME`, and gives `logits` and each part as `next.NAME`. All
zeros is the state of a stream that has had no token. A row's part depends on that row alone, so that streams can be batched.
"""

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from gaussport.export.bundle.record import Record
from gaussport.export.bundle.tensor_spec import TensorSpec

GIVEN, LEFT = "state.", "next."
"""What the names of a part begin with where the graph takes it, and where it gives it."""
COUNT = "count"
"""The part that counts a stream's tokens."""

_BYTES = {"float32": 4, "int64": 8}


class StreamSpec(Record):
    """The parts of the state by name, each [batch, …] in the order of the graph."""

    state: Annotated[tuple[TensorSpec, ...], Field(min_length=1, max_length=10_000)]
    bytes_per_stream: Annotated[int, Field(ge=1)]
    """What one stream's state takes in memory, however long the stream is."""

    @classmethod
    def of(cls, state: tuple[TensorSpec, ...]) -> Self:
        """The stream of these parts, its bytes counted."""
        return cls(state=state, bytes_per_stream=_bytes(state))

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        for part in self.state:
            if part.dtype not in _BYTES or not part.shape or not isinstance(part.shape[0], str):
                raise ValueError(f"the state {part.name} is {part.dtype} {part.shape}, not float32 or int64 of any batch")
            if any(not isinstance(axis, int) or axis < 1 for axis in part.shape[1:]):
                raise ValueError(f"the state {part.name} has the shape {part.shape}: only its batch may vary")
        if len({part.name for part in self.state}) != len(self.state):
            raise ValueError("two parts of the state have the same name")
        if self.bytes_per_stream != _bytes(self.state):
            raise ValueError(f"a stream is said to take {self.bytes_per_stream} bytes but its parts {_bytes(self.state)}")
        return self


def _bytes(state: tuple[TensorSpec, ...]) -> int:
    return sum(_BYTES.get(part.dtype, 0) * math.prod(int(axis) for axis in part.shape[1:]) for part in state)
