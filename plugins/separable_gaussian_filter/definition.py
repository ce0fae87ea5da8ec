"""The definition of `SeparableGaussianFilter` in float64. Every backend is tested against this file, and this file
against oracles of other projects (tests/plugins)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR


def separable_gaussian_filter(
    value: ArrayLike, offset: ArrayLike, width: ArrayLike, weight: ArrayLike
) -> NDArray[np.float64]:
    """Filter `value` by R separable Gaussian atoms per head and mix them by `weight`.

        row(i,k,r)[j] = softmax over j of −((i − j) − μ_row(i,k,r))² / (2 σ_row(i,k,r)²)
        col(i,w,r)[k] = softmax over k of −((w − k) − μ_col(i,w,r))² / (2 σ_col(i,w,r)²)
        output(i,w)   = Σ_r λ(i,w,r) Σ_k col(i,w,r)[k] Σ_j row(i,k,r)[j] · value(j,k)

    Args:
        value: [B, H, W, P, D].
        offset: μ = (row, column) in grid cells, [b, h, w, P, R, 2]; the centre of an atom is query − μ.
        width: effective σ > 0 in grid cells, [b, h, w, P, R, 2].
        weight: λ, [b, h, w, P, R].

    Returns:
        [B, H, W, P, D] in float64.

    Raises:
        ValueError: a shape does not fit, or a width is not positive.
    """
    value, offset, width, weight = (np.asarray(x, dtype=np.float64) for x in (value, offset, width, weight))
    sizes = OPERATOR.bind([value.shape, offset.shape, width.shape, weight.shape])
    B, H, W, P, R = (sizes[letter] for letter in "BHWPR")
    if not np.all(width > 0):
        raise ValueError("SeparableGaussianFilter: width must be positive everywhere")
    offset = np.broadcast_to(offset, (B, H, W, P, R, 2))
    width = np.broadcast_to(width, (B, H, W, P, R, 2))
    weight = np.broadcast_to(weight, (B, H, W, P, R))

    i = np.arange(H).reshape(H, 1, 1, 1, 1)  # a token's row, against [H, W, P, R, j]
    w = np.arange(W).reshape(1, W, 1, 1, 1)  # a token's column, against [H, W, P, R, k]
    row = _gaussian(i - np.arange(H), offset[..., 0], width[..., 0])  # [B, i, k, P, R, j]
    col = _gaussian(w - np.arange(W), offset[..., 1], width[..., 1])  # [B, i, w, P, R, k]
    filtered = np.einsum("bikprj,bjkpd->bikprd", row, value)  # by the steering of the intermediate token (i, k)
    output: NDArray[np.float64] = np.einsum("biwpr,biwprk,bikprd->biwpd", weight, col, filtered, optimize=True)
    return output


def _gaussian(distance: NDArray[np.int_], mu: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.float64]:
    """softmax over the last axis of −(distance − μ)² / 2σ²; the nearest cell takes all as σ → 0."""
    squared = (distance - mu[..., np.newaxis]) ** 2
    squared -= squared.min(axis=-1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):  # σ may be so small that all but the nearest cell are infinitely far
        weights = np.exp(-squared / sigma[..., np.newaxis] / sigma[..., np.newaxis] / 2)
    normalised: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return normalised
