"""How one head looks, whatever its operator: how far, how wide, in which direction, from its exact implied rows.

A head that weighed every cell alike would look at the grid's own mean distance. Local is at most half of that, long-range at
least nine tenths; directional is a head whose mean step is at least half as long as its mean distance.
"""

from typing import Any

import numpy as np

from gaussport.serving.explain.layer import Array
from gaussport.serving.explain.operators import View

LOCAL, LONG_RANGE, DIRECTIONAL = 0.5, 0.9, 0.5


def head_shape(view: View, head: int) -> dict[str, Any]:
    """Means over all query cells, in cells; `step` is (row, column) from the query to where it looks, down and right."""
    H, W = view.grid
    distances, entropies, alike = np.empty(H * W), np.empty(H * W), np.empty(H * W)
    steps = np.empty((H * W, 2))
    for row in range(H):
        shares = view.affinity(head, row)  # [W, H, W]
        shares = shares / np.maximum(shares.sum(axis=(1, 2), keepdims=True), 1e-300)
        down, right = np.arange(H)[:, None] - row, np.arange(W) - np.arange(W)[:, None]  # [H, 1] and [query, W]
        away = np.hypot(down, right[:, None])  # [query, H, W]
        part = slice(row * W, (row + 1) * W)
        distances[part] = (shares * away).sum(axis=(1, 2))
        steps[part] = np.stack([(shares.sum(2) * down[:, 0]).sum(1), (shares.sum(1) * right).sum(1)], axis=1)
        entropies[part] = _entropy(shares)
        alike[part] = away.mean(axis=(1, 2))
    step = steps.mean(axis=0)
    distance = float(distances.mean())
    return {
        "mean_distance_cells": distance,
        "step_cells": step.tolist(),
        "effective_cells": float(np.exp(entropies).mean()),
        "looks": _words(distance, float(alike.mean()), float(np.hypot(*step))),
    }


def _entropy(shares: Array) -> Array:
    entropy: Array = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=(1, 2))
    return entropy


def _words(distance: float, alike: float, step: float) -> list[str]:
    words = ["local"] if distance <= LOCAL * alike else ["long-range"] if distance >= LONG_RANGE * alike else ["middle"]
    return [*words, "directional"] if distance > 0 and step >= DIRECTIONAL * distance else words
