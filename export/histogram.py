"""How errors are spread: counts by power of ten of their share of the scale. One worst number hides whether it is alone."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LOWEST, HIGHEST, PER_DECADE = -10, 1, 4


def edges() -> NDArray[np.float64]:
    """The edges of the bins, as shares of the scale: four bins to a power of ten."""
    return np.asarray(10.0 ** np.linspace(LOWEST, HIGHEST, (HIGHEST - LOWEST) * PER_DECADE + 1))


@dataclass
class ErrorHistogram:
    """Counts of absolute errors by their share of the largest logit; `zeros` are equal to the bit, `lost` no numbers.

    What lies below the lowest edge counts in the first bin, what lies above the highest in the last.
    """

    zeros: int = 0
    lost: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(edges()) - 1))

    def add(self, expected: NDArray[np.float32], found: NDArray[np.float32], scale: float) -> None:
        """Count the errors of one batch of logits."""
        if expected.shape != found.shape:
            self.lost += expected.size
            return
        with np.errstate(invalid="ignore"):
            error = np.abs(expected.astype(np.float64) - found.astype(np.float64))
        finite = np.isfinite(error)
        self.lost += int(np.count_nonzero(~finite))
        self.zeros += int(np.count_nonzero(error == 0))
        shares = error[finite & (error > 0)] / max(scale, float(np.finfo(np.float32).tiny))
        bounds = edges()
        found_counts, _ = np.histogram(np.clip(shares, bounds[0], bounds[-1]), bounds)
        self.counts = [before + int(more) for before, more in zip(self.counts, found_counts, strict=True)]
