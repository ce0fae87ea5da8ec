"""From a histogram of magnitudes to the largest magnitude that int8 shall show; what is beyond it is clipped.

A narrow range shows small numbers finely and clips large ones, a wide one the other way round. The percentile clips a fixed
share. The entropy method (Migacz, "8-bit inference with TensorRT", GTC 2017) takes the range whose quantized histogram tells
least information from the original one, by Kullback–Leibler divergence.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Method = Literal["percentile", "entropy"]
METHODS: tuple[Method, ...] = get_args(Method)

PERCENTILE = 99.999
LEVELS = 128
"""Magnitudes that int8 tells apart: 0 … 127."""

Counts = NDArray[np.int64]


def threshold(counts: Counts, peak: float, method: Method) -> float:
    """The magnitude to clip at, for `counts` in equal bins over 0 … peak; never above `peak`, and 0 only if that is."""
    if peak == 0 or counts.sum() == 0:
        return peak
    bins = _percentile_bins(counts) if method == "percentile" else _entropy_bins(counts)
    return peak * bins / len(counts)


def _percentile_bins(counts: Counts) -> int:
    """How many bins from zero hold the percentile of all numbers."""
    return int(np.searchsorted(np.cumsum(counts), counts.sum() * PERCENTILE / 100)) + 1


def _entropy_bins(counts: Counts) -> int:
    """How many bins from zero to keep. Exact zeros, which any range shows, would outvote the rest: the first bin is taken
    to be as full as the second."""
    counts = counts.copy()
    counts[0] = counts[1]
    if counts.sum() == 0:
        return len(counts)
    candidates = range(LEVELS, len(counts) + 1)
    divergences = [_divergence(counts, kept) for kept in candidates]
    return candidates[int(np.argmin(divergences))]


def _divergence(counts: Counts, kept: int) -> float:
    """Kullback–Leibler divergence of the histogram, clipped to `kept` bins, from its quantized self."""
    reference = counts[:kept].astype(np.float64)
    clipped = reference.copy()
    clipped[-1] += counts[kept:].sum()
    filled = reference > 0
    level = np.minimum(np.arange(kept) * LEVELS // kept, LEVELS - 1)
    totals = np.bincount(level, weights=reference, minlength=LEVELS)
    occupied = np.bincount(level, weights=filled, minlength=LEVELS)
    quantized = np.where(filled, (totals / np.maximum(occupied, 1))[level], 0.0)
    p, q = clipped / clipped.sum(), quantized / max(quantized.sum(), 1.0)
    both = p > 0
    if np.any(q[both] == 0):  # clipped numbers landed in a bin that nothing fills after quantization
        return float("inf")
    return float(np.sum(p[both] * np.log(p[both] / q[both])))
