"""The definition of `LatentMemoryRouting` in float64. Every backend is tested against this file, and this file against
oracles of other projects (tests/plugins)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gaussport.plugins.latent_memory_routing.schema import OPERATOR

Array = NDArray[np.float64]


def latent_memory_routing(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    log_prior: ArrayLike,
    key_mask: ArrayLike | None = None,
    *,
    epsilon: float = 1e-6,
    causal: bool = False,
) -> Array:
    """Write values to K slots by the keys' responsibilities, read them by the queries'.

        Γ = softmax over k of log π_k − ½ Σ_m [ log(2π·variance_km) + (x_m − mean_km)² / variance_km ]
        bidirectional:  M = Γ_Kᵀ V   Z = Γ_Kᵀ 1     output = Γ_Q M / (Γ_Q Z + ε)
        causal:         M, Z are inclusive prefix sums over j ≤ i; output_i reads M⁽ⁱ⁾, Z⁽ⁱ⁾

    Args:
        query, key: routing vectors, [B, N, P, dr].
        value: [B, N, P, dv].
        mean, variance: diagonal Gaussians, [P, K, dr], variance > 0.
        log_prior: log π, [P, K].
        key_mask: [B, N]; 0 keeps a padded token out of the memory.

    Returns:
        [B, N, P, dv] in float64.

    Raises:
        ValueError: a shape does not fit, or a variance is not positive.
    """
    query, key, value, mean, variance, log_prior = (
        np.asarray(x, dtype=np.float64) for x in (query, key, value, mean, variance, log_prior)
    )
    mask = None if key_mask is None else np.asarray(key_mask, dtype=np.float64)
    OPERATOR.bind(
        [query.shape, key.shape, value.shape, mean.shape, variance.shape, log_prior.shape, getattr(mask, "shape", None)]
    )
    if not np.all(variance > 0):
        raise ValueError("LatentMemoryRouting: variance must be positive everywhere")

    read = responsibilities(query, mean, variance, log_prior)  # [B, N, P, K]
    write = responsibilities(key, mean, variance, log_prior)
    if mask is not None:
        write = write * mask[:, :, np.newaxis, np.newaxis]
    memory = np.einsum("bnpk,bnpd->bnpkd", write, value)  # what each token writes
    if causal:
        memory, mass = np.cumsum(memory, axis=1), np.cumsum(write, axis=1)
    else:
        memory, mass = memory.sum(axis=1, keepdims=True), write.sum(axis=1, keepdims=True)
    numerator = (read[..., np.newaxis] * memory).sum(axis=-2)  # [B, N, P, dv]
    denominator = (read * mass).sum(axis=-1)  # [B, N, P]
    output: Array = numerator / (denominator[..., np.newaxis] + epsilon)
    return output


def responsibilities(x: ArrayLike, mean: ArrayLike, variance: ArrayLike, log_prior: ArrayLike) -> Array:
    """Γ [B, N, P, K] of routing vectors x [B, N, P, dr]: each component's share of each token; rows sum to 1."""
    x, mean, variance, log_prior = (np.asarray(a, dtype=np.float64) for a in (x, mean, variance, log_prior))
    squared = (x[:, :, :, np.newaxis, :] - mean) ** 2  # [B, N, P, K, dr]
    score = log_prior - 0.5 * (np.log(2 * np.pi * variance) + squared / variance).sum(axis=-1)
    weights = np.exp(score - score.max(axis=-1, keepdims=True))
    shares: Array = weights / weights.sum(axis=-1, keepdims=True)
    return shares
