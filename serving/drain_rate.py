"""How fast a queue is answered, measured while there is something in it: decoding, waiting and inference together."""

from dataclasses import dataclass

_MEMORY = 0.9  # of what was measured before is kept when a batch is added


@dataclass
class DrainRate:
    """Images over busy seconds, the newest counting most. Times are of one monotonic clock."""

    images: float = 0.0
    busy_s: float = 0.0
    _since: float = 0.0

    def begin(self, now: float) -> None:
        """The queue was empty until now."""
        self._since = now

    def answered(self, images: int, now: float) -> None:
        """A batch of this many images ended now."""
        self.images = _MEMORY * self.images + images
        self.busy_s = _MEMORY * self.busy_s + max(0.0, now - self._since)
        self._since = now

    def seconds_for(self, images: int) -> float:
        """How long this many images will take; 0 while nothing is known."""
        return images * self.busy_s / self.images if self.images else 0.0
