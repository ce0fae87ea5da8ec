"""A batch in one array, whatever a model reads: its pictures [batch, C, height, width] where that is all, else a record for
each row with a field for each input.

So whoever cuts, joins, pads or counts rows never asks how many inputs there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.manifest import TensorSpec

Rows = NDArray[Any]

_SENT = {"float16": "float32"}


def packed(inputs: Mapping[str, Rows]) -> Rows:
    """The arrays [batch, …] of all inputs, in the graph's order, as one array [batch, …] that owns its memory in C order."""
    if len(inputs) == 1:
        return np.ascontiguousarray(next(iter(inputs.values())))
    size = len(next(iter(inputs.values())))
    rows = np.empty(size, dtype=[(name, array.dtype, array.shape[1:]) for name, array in inputs.items()])
    for name, array in inputs.items():
        rows[name] = array
    return rows


def blank(specs: Sequence[TensorSpec], size: int) -> Rows:
    """Zeros for all inputs; those of narrow types are float32, as requests bring them."""
    inputs = {spec.name: np.zeros((size, *map(int, spec.shape[1:])), _SENT.get(spec.dtype, spec.dtype)) for spec in specs}
    return packed(inputs)


def inputs_of(rows: Rows, first: str) -> dict[str, Rows]:
    """The array of each input, none of them copied; `first` is the name of the only one."""
    return {first: rows} if rows.dtype.names is None else {name: rows[name] for name in rows.dtype.names}
