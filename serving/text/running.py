"""Tokens through a model's runtime, from several threads, with no more padding than the batch needs."""

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gaussport.models.text import pad_batch
from gaussport.models.text.tokenization import Tokenization
from gaussport.serving.runtime import Runtime
from gaussport.serving.text.queue import LengthQueue, Ragged
from gaussport.serving.waiting import Rows

Tokens = NDArray[np.int64]

_WARM_UP_S = {"cpu": 1.0}
_WARM_UP_OF_GPUS_S = 30.0


def rows_of(spec: Tokenization) -> Ragged[Tokens]:
    """Rows of tokens, filled up at the right."""

    def lay_out(rows: Sequence[Tokens], length: int) -> Rows:
        return pad_batch(rows, spec, length)

    return Ragged(len, lay_out)


class TokenRunner:
    """A CPU is given a batch cut to its longest row. A GPU's provider chooses kernels anew for each shape: it sees the
    lengths alone, and one batch at a time, because its batches go through one buffer."""

    def __init__(self, runtime: Runtime, pad: int, observe: Callable[[int], None] = lambda tokens: None) -> None:
        self._runtime, self._pad, self._observe = runtime, pad, observe
        self._cuts = runtime.provider == "cpu"
        self._alone = threading.Lock()

    def __call__(self, rows: Rows) -> Rows:
        if self._cuts:
            rows = without_padding(rows, self._pad)
        self._observe(rows.size)
        if self._cuts:
            return self._runtime.run(rows)
        with self._alone:
            return self._runtime.run(rows)


def without_padding(rows: Rows, pad: int) -> Rows:
    """Tokens [batch, length] as far as the longest row goes; one column at least."""
    used = np.flatnonzero((rows != pad).any(axis=0))
    length = int(used[-1]) + 1 if len(used) else 1
    return np.ascontiguousarray(rows[:, :length])


def warm_up(queue: LengthQueue[Tokens], runtime: Runtime) -> None:
    """Every length, alone and in its largest batch, the short ones first, until the time for it is over."""
    began, patience_s = time.monotonic(), _WARM_UP_S.get(runtime.provider, _WARM_UP_OF_GPUS_S)
    for length in queue.lengths:
        most = queue.most_rows(length)
        for size in queue.sizes(most) or sorted({1, most}):
            runtime.run(np.zeros((size, length), dtype=np.int64))
            if time.monotonic() - began > patience_s:
                return
