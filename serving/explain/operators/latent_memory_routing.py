"""GMA: which components the tokens of a picture use, which are dead or double, and the attention row that they imply."""

from typing import Any

import numpy as np

from gaussport.serving.explain.layer import Array, Layer

OPERATOR = "LatentMemoryRouting"

DEAD_SHARE = 0.001
"""A component that takes less than this share of the queries and of the keys is dead."""
SAME_OVERLAP = 0.95
"""Two Gaussians whose Bhattacharyya coefficient is above this are the same component twice."""


class RoutingView:
    """One layer's responsibilities over one picture.

    Attributes:
        query, key: Γ_Q and Γ_K, [N, P, K].
        mass: Z, [P, K] of the whole picture; in causal order [N, P, K].
        norm: d = Γ_Q Z, [N, P].
    """

    def __init__(self, layer: Layer, index: int) -> None:
        self.name, self.operator = layer.name, layer.operator
        self.query = layer.of_picture("query_responsibility", index)
        self.key = layer.of_picture("key_responsibility", index)
        self.causal, self.epsilon = bool(layer.attributes.get("causal", 0)), float(layer.attributes.get("epsilon", 1e-6))
        mass = layer.of_picture("mass", index)  # [1 or N, P, K]
        self.norm: Array = (self.query * mass).sum(axis=-1)
        self.mass = mass if self.causal else mass[0]
        self.grid = layer.grid_of(len(self.query))
        self.heads, self.components = self.query.shape[1:]
        self._mixture = [layer.constant(name) for name in ("mean", "variance", "log_prior")]

    def row(self, head: int, cell: tuple[int, int]) -> Array:
        return np.asarray(self.affinity(head, cell[0])[cell[1]])

    def affinity(self, head: int, row: int) -> Array:
        """A(i, j) = Σ_k Γ_Q(i,k) Γ_K(j,k) / (d_i + ε), of a causal layer for j ≤ i only."""
        H, W = self.grid
        tokens = np.arange(row * W, (row + 1) * W)
        shares: Array = self.query[tokens, head] @ self.key[:, head].T / (self.norm[tokens, head, None] + self.epsilon)
        if self.causal:
            shares = np.where(np.arange(H * W) <= tokens[:, None], shares, 0.0)
        return shares.reshape(W, H, W)

    def sums(self, head: int) -> Array:
        norm = self.norm[:, head]
        return np.asarray(norm / (norm + self.epsilon)).reshape(self.grid)

    def layer_numbers(self) -> dict[str, Any]:
        return {"components": self.components, "causal": self.causal, "epsilon": self.epsilon}

    def head_numbers(self, head: int) -> dict[str, Any]:
        read, write = self.query[:, head], self.key[:, head]
        usage = {"query": read.mean(axis=0), "key": write.mean(axis=0)}
        log_prior = self._mixture[2]
        return {
            "usage": {name: shares.tolist() for name, shares in usage.items()},
            "prior": None if log_prior is None else np.exp(log_prior[head]).tolist(),
            "mass": (self.mass[-1, head] if self.causal else self.mass[head]).tolist(),
            "entropy_nats": {"query": _entropy(read), "key": _entropy(write)},
            "dead": np.flatnonzero((usage["query"] < DEAD_SHARE) & (usage["key"] < DEAD_SHARE)).tolist(),
            "duplicates": self.duplicates(head),
            "effective_rank": effective_rank(read, write),
        }

    def duplicates(self, head: int) -> list[dict[str, Any]]:
        """Pairs of components that are nearly one Gaussian, whatever the picture."""
        mean, variance = self._mixture[:2]
        if mean is None or variance is None:
            return []
        overlap = bhattacharyya(mean[head], variance[head])
        pairs = zip(*np.nonzero(np.triu(overlap > SAME_OVERLAP, 1)), strict=True)
        return [{"components": [int(a), int(b)], "overlap": float(overlap[a, b])} for a, b in pairs]

    def cell_numbers(self, head: int, cell: tuple[int, int]) -> dict[str, Any]:
        token = cell[0] * self.grid[1] + cell[1]
        return {
            "responsibility": {"query": self.query[token, head].tolist(), "key": self.key[token, head].tolist()},
            "norm": float(self.norm[token, head]),
        }

    def token_numbers(self, head: int) -> dict[str, Any]:
        maps = {"query": self.query[:, head], "key": self.key[:, head]}
        return {"responsibility": {name: shares.reshape(*self.grid, -1).tolist() for name, shares in maps.items()}}


def _entropy(shares: Array) -> float:
    """Mean over tokens of −Σ Γ log Γ, in nats: 0 when each token has one component, log K when it has all alike."""
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return float(-(shares * logs).sum(axis=-1).mean())


def effective_rank(read: Array, write: Array) -> float:
    """exp of the entropy of the normalised singular values of Γ_Q Γ_Kᵀ (Roy and Vetterli, 2007), for Γ [N, K]; from two K×K
    triangles, without the N×N matrix."""
    _, read_triangle = np.linalg.qr(read)
    _, write_triangle = np.linalg.qr(write)
    values = np.linalg.svd(read_triangle @ write_triangle.T, compute_uv=False)
    shares = values / values.sum()
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def bhattacharyya(mean: Array, variance: Array) -> Array:
    """[K, K]: ∫√(pq) of each pair of diagonal Gaussians, for mean and variance [K, dr]; 1 when they are the same."""
    between = (variance[:, None] + variance) / 2  # [K, K, dr]
    distance = (mean[:, None] - mean) ** 2 / between / 8
    volume = (np.log(between) - (np.log(variance[:, None]) + np.log(variance)) / 2) / 2
    overlap: Array = np.exp(-(distance + volume).sum(axis=-1))
    return overlap


VIEW = RoutingView
