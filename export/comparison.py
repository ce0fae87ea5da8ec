"""Two answers to the same question, compared: how far apart, in what direction, which classes win, what is no number."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SMALL = 1e-3
"""Relative errors are against the logit itself, or this share of the scale where the logit is smaller: next to a zero
every error is infinite, and means nothing."""

C_ORDER = "C order"
TOP = 5


@dataclass(frozen=True)
class Comparison:
    """One batch of one model against the reference."""

    subject: str
    """Which model: the file as it is, with its functions inlined, or an engine."""
    batch: int
    probe: str
    max_abs: float
    max_rel: float
    top1_agreement: float
    """Share of rows whose largest logit is the same."""
    not_finite: int
    """How many numbers on either side are NaN or infinite."""
    mean_abs: float = float("inf")
    cosine: float = 0.0
    """The smallest cosine between a row of logits and the reference's; 1 for two rows of zeros."""
    top5_agreement: float = 0.0
    """Share of the reference's five best classes that are among the model's five best."""
    layout: str = C_ORDER
    """How the pixels lay in memory."""

    def within(self, tolerance: float) -> bool:
        return self.not_finite == 0 and self.max_abs <= tolerance


def compare(
    subject: str,
    probe: str,
    expected: NDArray[np.float32],
    found: NDArray[np.float32],
    scale: float,
    layout: str = C_ORDER,
) -> Comparison:
    """Compare logits [batch, classes]; a different shape counts as wholly not finite."""
    rows = len(expected)
    bad = expected.size if found.shape != expected.shape else 0
    wide = expected.astype(np.float64)
    other = found.astype(np.float64)
    bad = bad or int(np.count_nonzero(~np.isfinite(wide)) + np.count_nonzero(~np.isfinite(other)))
    if bad:
        return Comparison(subject, rows, probe, np.inf, np.inf, 0.0, bad, layout=layout)
    error = np.abs(wide - other)
    smallest = _SMALL * scale + float(np.finfo(np.float32).tiny)
    relative = error / np.maximum(np.abs(wide), smallest)
    return Comparison(
        subject,
        rows,
        probe,
        max_abs=float(error.max()),
        max_rel=float(relative.max()),
        top1_agreement=float(np.mean(wide.argmax(-1) == other.argmax(-1))),
        not_finite=0,
        mean_abs=float(error.mean()),
        cosine=float(_cosines(wide, other).min()),
        top5_agreement=float(_shared_best(wide, other).mean()),
        layout=layout,
    )


def _cosines(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cosine of each pair of rows. Rows are scaled first: squares of 1e200 would overflow."""
    one, other = (x / np.maximum(np.abs(x).max(-1, keepdims=True), np.finfo(np.float64).tiny) for x in (one, other))
    norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    both_zero = ~one.any(-1) & ~other.any(-1)
    products = np.sum(one * other, axis=-1)
    cosines: NDArray[np.float64] = np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)
    return np.where(both_zero, 1.0, cosines)


def _shared_best(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each row the share of the five best classes, or of all where there are fewer, that both have."""
    best = min(TOP, one.shape[-1])
    first, second = (np.argsort(-x, axis=-1, kind="stable")[:, :best] for x in (one, other))
    shared: NDArray[np.float64] = np.mean((first[:, :, None] == second[:, None, :]).any(-1), axis=-1)
    return shared
