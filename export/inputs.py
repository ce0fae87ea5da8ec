"""What a model reads for one batch: an array for each of its inputs, all with the batch as their first axis."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

Inputs = Mapping[str, Array]
"""An array [batch, …] by the name of each input, in the order of the graph and of the module's `forward`."""


def rows_of(inputs: Inputs) -> int:
    """How many rows the batch has."""
    return len(next(iter(inputs.values())))


def part_of(inputs: Inputs, start: int, stop: int) -> Inputs:
    """Some rows of the batch."""
    return {name: array[start:stop] for name, array in inputs.items()}
