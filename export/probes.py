"""What a proof feeds both models: seeded noise, and the pictures at the edge of what preprocessing can make."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.models.image.preprocess import Preprocessing

Pixels = NDArray[np.float32]

_KINDS = ("noise", "zeros", "white", "normal", "black", "checks")
_SEEDS = {1: 1, 2: 2, 7: 2}  # how many mixtures of a batch size; a larger batch is one mixture with many rows


@dataclass(frozen=True)
class Probes:
    """Makes batches for models that take pixels [batch, *shape] between `low` and `high`, each [channels]."""

    shape: tuple[int, int, int]
    low: Pixels
    high: Pixels

    @classmethod
    def of(cls, preprocessing: Preprocessing) -> "Probes":
        """Probes whose black and white are those that the preprocessing makes."""
        mean, std = (np.asarray(x, dtype=np.float32) for x in (preprocessing.mean, preprocessing.std))
        return cls(preprocessing.tensor_shape, (0 - mean) / std, (1 - mean) / std)

    def batches(self, size: int) -> Iterator[tuple[str, Pixels]]:
        """Batches of that size by name: alone at size 1, else mixed so that no two rows are equal."""
        for seed in range(_SEEDS.get(size, 1)):
            random = np.random.default_rng([size, seed])
            if size == 1:
                for kind in _KINDS:
                    yield kind, self._one(kind, random)[np.newaxis]
            else:
                kinds = [_KINDS[(row + seed) % len(_KINDS)] if row < len(_KINDS) else "noise" for row in range(size)]
                yield f"mixture {seed + 1}", np.stack([self._one(kind, random) for kind in kinds])

    def _one(self, kind: str, random: np.random.Generator) -> Pixels:
        low, high = (np.broadcast_to(level[:, None, None], self.shape) for level in (self.low, self.high))
        if kind == "noise":
            return np.asarray(low + (high - low) * random.random(self.shape, dtype=np.float32), dtype=np.float32)
        if kind == "normal":
            return random.standard_normal(self.shape, dtype=np.float32)
        if kind == "checks":
            return np.where(np.indices(self.shape[1:]).sum(0) % 2 == 0, low, high).astype(np.float32)
        return {"zeros": np.zeros(self.shape, np.float32), "white": high.copy(), "black": low.copy()}[kind]


def batch_sizes(max_batch: int) -> list[int]:
    """The batch sizes that a proof runs: 1, 2, 7 and the largest."""
    return sorted({1, 2, 7, max_batch})
