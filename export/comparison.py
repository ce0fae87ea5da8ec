"""Two answers to the same question, compared: worst absolute and relative error, agreement on the class, NaN scan."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SMALL = 1e-3
"""Relative errors are against the logit itself, or this share of the scale where the logit is smaller: next to a zero
every error is infinite, and means nothing."""


@dataclass(frozen=True)
class Comparison:
    """One batch of one model against PyTorch."""

    subject: str
    """Which model: the file as it is, or with its functions inlined."""
    batch: int
    probe: str
    max_abs: float
    max_rel: float
    top1_agreement: float
    """Share of rows whose largest logit is the same."""
    not_finite: int
    """How many numbers on either side are NaN or infinite."""

    def within(self, tolerance: float) -> bool:
        return self.not_finite == 0 and self.max_abs <= tolerance


def compare(subject: str, probe: str, expected: NDArray[np.float32], found: NDArray[np.float32], scale: float) -> Comparison:
    """Compare logits [batch, classes]; a different shape counts as wholly not finite."""
    rows = len(expected)
    if found.shape != expected.shape:
        return Comparison(subject, rows, probe, np.inf, np.inf, 0.0, expected.size)
    wide, other = expected.astype(np.float64), found.astype(np.float64)
    not_finite = int(np.count_nonzero(~np.isfinite(wide)) + np.count_nonzero(~np.isfinite(other)))
    if not_finite:
        return Comparison(subject, rows, probe, np.inf, np.inf, 0.0, not_finite)
    error = np.abs(wide - other)
    smallest = _SMALL * scale + float(np.finfo(np.float32).tiny)
    relative = error / np.maximum(np.abs(wide), smallest)
    agreement = float(np.mean(wide.argmax(-1) == other.argmax(-1)))
    return Comparison(subject, rows, probe, float(error.max()), float(relative.max()), agreement, 0)
