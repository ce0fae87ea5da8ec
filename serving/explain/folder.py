"""Over many pictures: which patches each component likes best, and how much it knows of the label.

For layers with responsibilities. A token belongs to the component that takes most of its key; the label is the folder that
the picture lies in.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.serving.explain.layer import Array
from gaussport.serving.explain.operators import View

TOP = 8


@dataclass(order=True, frozen=True)
class Patch:
    """One cell of one picture, and the share of it that a component takes."""

    share: float
    picture: int
    cell: tuple[int, int]


@dataclass
class Census:
    """Counts of one head: `counts` [K] of tokens for each label, `usage` [K] summed, and each component's best patches."""

    components: int
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    usage: Array = field(init=False)
    tokens: int = 0
    best: list[list[Patch]] = field(init=False)

    def __post_init__(self) -> None:
        self.usage = np.zeros(self.components)
        self.best = [[] for _ in range(self.components)]

    def add(self, shares: Array, grid: tuple[int, int], picture: int, label: str) -> None:
        """Count one picture's Γ_K [N, K]."""
        counts = self.counts.setdefault(label, np.zeros(self.components, dtype=np.int64))
        counts += np.bincount(shares.argmax(axis=1), minlength=self.components)
        self.usage += shares.sum(axis=0)
        self.tokens += len(shares)
        for component, tokens in enumerate(np.argsort(-shares, axis=0, kind="stable")[:TOP].T):
            for token in tokens:
                patch = Patch(float(shares[token, component]), picture, divmod(int(token), grid[1]))
                if len(self.best[component]) < TOP:
                    heapq.heappush(self.best[component], patch)
                elif patch.share > self.best[component][0].share:
                    heapq.heapreplace(self.best[component], patch)

    def to_json(self, pictures: Sequence[str]) -> dict[str, Any]:
        """`label_overlap_nmi` is None when all pictures have one label."""
        table = np.array(list(self.counts.values()))
        best = [sorted(patches, key=lambda patch: -patch.share) for patches in self.best]
        return {
            "usage": (self.usage / max(self.tokens, 1)).tolist(),
            "label_overlap_nmi": normalised_mutual_information(table) if len(table) > 1 else None,
            "top_patches": [
                [{"image": pictures[patch.picture], "cell": list(patch.cell), "share": patch.share} for patch in patches]
                for patches in best
            ],
        }


def count(censuses: dict[tuple[str, int], Census], views: Sequence[View], picture: int, label: str) -> None:
    """Count one picture in the census of each layer and head that has responsibilities."""
    for view in views:
        shares = getattr(view, "key", None)  # [N, P, K]
        if shares is None:
            continue
        for head in range(view.heads):
            census = censuses.setdefault((view.name, head), Census(shares.shape[2]))
            census.add(shares[:, head], view.grid, picture, label)


def normalised_mutual_information(table: NDArray[np.int64]) -> float:
    """2·I(label; component) / (H(label) + H(component)) of a table of counts [label, component]: 0 when one tells nothing of
    the other, 1 when each tells the other."""
    joint = table / max(int(table.sum()), 1)
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    entropies = _entropy(rows) + _entropy(columns)
    return 2 * (entropies - _entropy(joint.ravel())) / entropies if entropies > 0 else 1.0


def _entropy(shares: Array) -> float:
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())
