"""A bound on the pixels that are being decoded at one moment, over all threads: twenty small pictures or two huge ones."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PixelRoom:
    """Room for this many pixels. A picture larger than all of it is decoded alone."""

    def __init__(self, pixels: int) -> None:
        self._pixels = pixels
        self._used = 0
        self._freed = threading.Condition()

    @contextmanager
    def reserved(self, pixels: int) -> Iterator[None]:
        """Wait for room for these pixels and keep it."""
        with self._freed:
            self._freed.wait_for(lambda: not self._used or self._used + pixels <= self._pixels)
            self._used += pixels
        try:
            yield
        finally:
            with self._freed:
                self._used -= pixels
                self._freed.notify_all()
