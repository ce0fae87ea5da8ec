"""From logits to labels: the same arithmetic for the server and for `gaussport classify`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOT_FINITE = "the model's answer is not finite: the input is out of range"


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Softmax over the labels, in float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    normalised: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return normalised


def best(row: NDArray[np.float64], labels: Sequence[str], top_k: int) -> list[dict[str, Any]]:
    """The top_k labels of one row of probabilities, best first; equal ones by index."""
    order = _best(row, top_k).tolist()
    return [{"label": labels[index], "index": index, "probability": float(row[index])} for index in order]


def _best(row: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Indices of the largest, as a stable sort would have them; of a thousand labels a fifth of its time."""
    if count >= len(row):
        return np.argsort(-row, kind="stable")
    least = np.partition(row, -count)[-count]
    candidates = np.flatnonzero(row >= least)
    return candidates[np.argsort(-row[candidates], kind="stable")][:count]
