"""SSOG: each head's atoms, how far each token steers them, and the exact attention row that they imply."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.serving.explain.layer import Array, Layer

OPERATOR = "SeparableGaussianFilter"

_BINS = 16
SECTORS = ("up", "up right", "right", "down right", "down", "down left", "left", "up left")
"""Where an atom's centre goes; up is towards row 0."""


class FieldView:
    """One layer's field over one picture.

    Attributes:
        offset, width: μ and effective σ in cells, (row, column), [H, W, P, R, 2]; an atom's centre is query − μ.
        weight: λ, [H, W, P, R].
        fixed: the same without the tokens' steering, [P, R, 2] and [P, R]; None when the bundle does not tell.
    """

    def __init__(self, layer: Layer, index: int) -> None:
        self.name, self.operator = layer.name, layer.operator
        offset, width, weight = (layer.of_picture(name, index) for name in ("offset", "width", "weight"))
        self.steered = weight.shape[:2] != (1, 1)
        self.grid = layer.grid or (weight.shape[0], weight.shape[1])
        self.heads, self.atoms = weight.shape[2:]
        self.offset = np.broadcast_to(offset, (*self.grid, *offset.shape[2:]))
        self.width = np.broadcast_to(width, (*self.grid, *width.shape[2:]))
        self.weight = np.broadcast_to(weight, (*self.grid, *weight.shape[2:]))
        told = [layer.constant(f"fixed_{name}") for name in ("offset", "width", "weight")]
        known = [part for part in told if part is not None] if self.steered else [offset[0, 0], width[0, 0], weight[0, 0]]
        self.fixed = known if len(known) == len(told) else None
        self.gates = layer.constant("gates")

    def row(self, head: int, cell: tuple[int, int]) -> Array:
        return np.asarray(self.affinity(head, cell[0])[cell[1]])

    def affinity(self, head: int, row: int) -> Array:
        """A(w, j, k) = Σ_r λ(i,w,r) · col(i,w,r)[k] · row(i,k,r)[j] for the query row i: the filter over rows takes the
        steering of the intermediate token (i, k)."""
        H, W = self.grid
        offset, width, weight = self.offset[row, :, head], self.width[row, :, head], self.weight[row, :, head]  # [W, R, …]
        columns = np.arange(W)[:, None, None] - np.arange(W)  # [w, 1, k]
        col = _gaussian(columns, offset[..., 1], width[..., 1])  # [w, R, k]
        rows = _gaussian(row - np.arange(H), offset[..., 0], width[..., 0])  # [k, R, j]
        found: Array = np.einsum("wr,wrk,krj->wjk", weight, col, rows, optimize=True)
        return found

    def sums(self, head: int) -> Array:
        return np.ones(self.grid)

    def layer_numbers(self) -> dict[str, Any]:
        gates = None
        if self.gates is not None:
            gates = dict(zip(("offset_cells", "log_width", "log_weight"), self.gates.tolist(), strict=True))
        return {"steered": self.steered, "atoms": self.atoms, "gates": gates, "steering": self.steering()}

    def steering(self) -> dict[str, Any] | None:
        """How far the tokens move the atoms' centres from the fixed field, in cells, and in which direction: each move
        counts by its atom's λ."""
        if self.fixed is None or not self.steered:
            return None
        move = -(self.offset - self.fixed[0])  # centres are query − μ
        distance = np.hypot(move[..., 0], move[..., 1])
        edges = np.linspace(0, max(float(distance.max()), 1e-12), _BINS + 1)
        counts, _ = np.histogram(distance, edges, weights=self.weight)
        turn = np.arctan2(move[..., 1], -move[..., 0]) / (2 * np.pi)  # 0 is up, a quarter is right
        sector = np.round(turn * len(SECTORS)).astype(int) % len(SECTORS)
        share = np.bincount(sector.ravel(), (self.weight * distance).ravel(), len(SECTORS))
        return {
            "mean_cells": float((distance * self.weight).sum() / self.weight.sum()),
            "largest_cells": float(distance.max()),
            "edges_cells": edges.tolist(),
            "share": (counts / counts.sum()).tolist(),
            "directions": dict(zip(SECTORS, (share / max(float(share.sum()), 1e-300)).tolist(), strict=True)),
        }

    def head_numbers(self, head: int) -> dict[str, Any]:
        if self.fixed is None:
            return {"fixed": None}
        return {"fixed": _atoms(*(part[head] for part in self.fixed))}

    def cell_numbers(self, head: int, cell: tuple[int, int]) -> dict[str, Any]:
        return {"atoms": _atoms(self.offset[cell][head], self.width[cell][head], self.weight[cell][head])}

    def token_numbers(self, head: int) -> dict[str, Any]:
        return {"atoms": _atoms(self.offset[:, :, head], self.width[:, :, head], self.weight[:, :, head])}


def _atoms(offset: Array, width: Array, weight: Array) -> dict[str, Any]:
    return {"offset": offset.tolist(), "width": width.tolist(), "weight": weight.tolist()}


def _gaussian(distance: NDArray[np.int_], mu: Array, sigma: Array) -> Array:
    """softmax over the last axis of −(distance − μ)² / 2σ², for mu and sigma […, R]: the nearest cell takes all as σ → 0."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = ((distance - mu[..., None]) / sigma[..., None]) ** 2 / 2
        weights = np.exp(scaled.min(axis=-1, keepdims=True) - scaled)
    shares: Array = weights / weights.sum(axis=-1, keepdims=True)
    return shares


VIEW = FieldView
