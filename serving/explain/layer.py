"""One attention layer's tensors, as `explain.onnx` gives them for a batch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """`picture` is (height, width) of what the model sees, `grid` (H, W) of its tokens where the graph tells it."""

    name: str
    operator: str
    grid: tuple[int, int] | None
    picture: tuple[int, int]
    attributes: Mapping[str, Any]
    tensors: Mapping[str, NDArray[np.generic]]

    def of_picture(self, name: str, index: int) -> Array:
        """A tensor's part that belongs to picture `index`; its first axis is the batch, or 1 for all pictures."""
        tensor = self.tensors[name]
        return np.asarray(tensor[index if len(tensor) > 1 else 0], dtype=np.float64)

    def constant(self, name: str) -> Array | None:
        """A tensor that is the same for every picture, if the bundle has it."""
        return np.asarray(self.tensors[name], dtype=np.float64) if name in self.tensors else None

    def grid_of(self, tokens: int) -> tuple[int, int]:
        """How so many tokens lie over the picture: as the graph says, else in the picture's own proportions."""
        if self.grid is not None and math.prod(self.grid) == tokens:
            return self.grid
        height, width = self.picture
        rows = round(math.sqrt(tokens * height / width))
        return (rows, tokens // rows) if rows and tokens % rows == 0 else (1, tokens)
