"""The body of one request while it arrives: memory that the network writes to, handed on in large pieces.

To wake the application costs more than to copy what it is woken for. But what it has not been handed no limit of ours
counts yet, so the memory that all bodies have here is bounded by itself: where there are many, their pieces are small.
"""

import numpy as np

_PIECE_BYTES = 1_048_576
_SMALL_PIECE_BYTES = 65_536
_SHARED_BYTES = 16_777_216
_NOTHING = memoryview(b"")


class ArrivingBody:
    """What has arrived of one body since the last piece was handed on."""

    shared_bytes = 0
    """The memory of all of them."""

    def __init__(self) -> None:
        self._memory = _NOTHING
        self._filled = 0

    def __bool__(self) -> bool:
        return self._filled > 0

    def room(self, wanted: int) -> memoryview:
        """Memory for what comes next, at least one byte and at most as much as is wanted."""
        if not self._memory:
            most = _PIECE_BYTES if ArrivingBody.shared_bytes < _SHARED_BYTES else _SMALL_PIECE_BYTES
            self._memory = np.empty(min(wanted, most), np.uint8).data  # which is not filled with zeros first
            ArrivingBody.shared_bytes += len(self._memory)
        return self._memory[self._filled : self._filled + wanted]

    def written(self, size: int) -> bool:
        """So much was written to the room. Whether a piece is full."""
        self._filled += size
        return self._filled == len(self._memory)

    def take(self) -> memoryview:
        """The piece, which is the caller's from now on."""
        piece = self._memory[: self._filled]
        self.drop()
        return piece

    def drop(self) -> None:
        """Forget what is here."""
        ArrivingBody.shared_bytes -= len(self._memory)
        self._memory, self._filled = _NOTHING, 0
