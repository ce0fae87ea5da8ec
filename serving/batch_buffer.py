"""The memory that batches are laid out in, allocated once and used again: requests' rows side by side, then padding."""

from collections.abc import Sequence

import numpy as np

from gaussport.serving.waiting import Rows


class BatchBuffer:
    """For one model whose batches never overlap. `sizes` are those the runtime may see, ascending; none for any."""

    def __init__(self, sizes: Sequence[int] = ()) -> None:
        self._sizes = sizes
        self._rows: Rows | None = None

    def gather(self, pieces: Sequence[Rows], images: int) -> Rows:
        """All rows of the pieces, in order, padded with zeros to the next size. A single piece that needs no padding
        is returned as it is, uncopied; else the result is valid until the next call."""
        size = next((size for size in self._sizes if size >= images), images)
        if len(pieces) == 1 and size == images:
            return pieces[0]
        shape = pieces[0].shape[1:]
        if any(piece.shape[1:] != shape for piece in pieces):
            raise ValueError("rows of different shapes cannot form a batch")
        buffer = self._sized(size, pieces[0])
        start = 0
        for piece in pieces:
            buffer[start : start + len(piece)] = piece
            start += len(piece)
        buffer[images:size] = 0  # what an earlier batch left there must not reach the model
        return buffer[:size]

    def _sized(self, size: int, like: Rows) -> Rows:
        """The buffer, grown to the largest batch seen so far: the queue is seldom full on the first day."""
        if self._rows is None or len(self._rows) < size or self._rows.shape[1:] != like.shape[1:]:
            self._rows = np.empty((size, *like.shape[1:]), dtype=like.dtype)
        return self._rows
