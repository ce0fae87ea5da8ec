"""What a proof feeds the models: seeded noise, pictures with the statistics of natural ones, the edges of what
preprocessing can make, in every batch size and in several memory layouts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.export.comparison import C_ORDER
from gaussport.models.image.preprocess import Preprocessing

Pixels = NDArray[np.float32]

_KINDS = ("noise", "scene", "zeros", "white", "normal", "black", "checks", "one patch")
_SEEDS = {1: 1, 2: 2, 7: 2}  # how many mixtures of a batch size; a larger batch is one mixture with many rows
_LAYOUTS_AT = 3
"""The batch size at which every memory layout is fed: more than one row, and odd."""


@dataclass(frozen=True)
class Question:
    """One batch: what it shows, how it lies in memory, and the pixels [batch, C, height, width]."""

    probe: str
    pixels: Pixels
    layout: str = C_ORDER


@dataclass(frozen=True)
class Probes:
    """Makes batches for models that take pixels [batch, *shape] between `low` and `high`, each [channels]."""

    shape: tuple[int, int, int]
    low: Pixels
    high: Pixels
    patch: int | None = None
    """Side of the patch that is lit alone; an eighth of the picture when it is not known."""

    @classmethod
    def of(cls, preprocessing: Preprocessing, patch: int | None = None) -> "Probes":
        """Probes whose black and white are those that the preprocessing makes."""
        mean, std = (np.asarray(x, dtype=np.float32) for x in (preprocessing.mean, preprocessing.std))
        return cls(preprocessing.tensor_shape, (0 - mean) / std, (1 - mean) / std, patch)

    def questions(self, max_batch: int, photographs: Sequence[Pixels] = ()) -> list[Question]:
        """Every batch that a proof runs: all sizes, all layouts, and the photographs [C, height, width] one by one."""
        asked = [Question(name, pixels) for size in batch_sizes(max_batch) for name, pixels in self.batches(size)]
        odd = next(question for question in asked if len(question.pixels) == _LAYOUTS_AT)
        asked += [Question(odd.probe, pixels, layout) for layout, pixels in layouts(odd.pixels)]
        return asked + [Question(f"photograph {n + 1}", picture[np.newaxis]) for n, picture in enumerate(photographs)]

    def batches(self, size: int) -> Iterator[tuple[str, Pixels]]:
        """Batches of that size by name: alone at size 1, else mixed so that no two rows are equal."""
        for seed in range(_SEEDS.get(size, 1)):
            random = np.random.default_rng([size, seed])
            if size == 1:
                for kind in _KINDS:
                    yield kind, self._one(kind, random)[np.newaxis]
            else:
                start = 3 * seed + size  # so that the small sizes do not all show the same few kinds
                turns = [row + start if row < len(_KINDS) else row % 2 for row in range(size)]
                kinds = [_KINDS[turn % len(_KINDS)] for turn in turns]
                yield f"mixture {seed + 1}", np.stack([self._one(kind, random) for kind in kinds])

    def _one(self, kind: str, random: np.random.Generator) -> Pixels:
        low, high = (np.broadcast_to(level[:, None, None], self.shape) for level in (self.low, self.high))
        if kind == "noise":
            return np.asarray(low + (high - low) * random.random(self.shape, dtype=np.float32), dtype=np.float32)
        if kind == "scene":
            return np.asarray(low + (high - low) * natural(self.shape, random), dtype=np.float32)
        if kind == "normal":
            return random.standard_normal(self.shape, dtype=np.float32)
        if kind == "checks":
            return np.where(np.indices(self.shape[1:]).sum(0) % 2 == 0, low, high).astype(np.float32)
        if kind == "one patch":
            side = self.patch or max(1, min(self.shape[1:]) // 8)
            row, column = (side * int(random.integers(max(1, extent // side))) for extent in self.shape[1:])
            lit = np.zeros(self.shape, np.float32)
            lit[:, row : row + side, column : column + side] = high[:, row : row + side, column : column + side]
            return lit
        return {"zeros": np.zeros(self.shape, np.float32), "white": high.copy(), "black": low.copy()}[kind]


def natural(shape: tuple[int, int, int], random: np.random.Generator) -> Pixels:
    """A picture from 0 to 1 whose amplitudes fall as one over frequency, as those of photographs do (Field 1987), and
    whose channels are mostly alike."""
    frequency = np.hypot(np.fft.fftfreq(shape[1])[:, None], np.fft.rfftfreq(shape[2])[None])
    frequency[0, 0] = np.inf
    white = random.standard_normal((shape[0] + 1, *shape[1:]))
    planes = np.fft.irfft2(np.fft.rfft2(white) / frequency, s=shape[1:])
    picture = planes[0] + 0.3 * planes[1:]
    spread = picture.max() - picture.min()
    return np.asarray((picture - picture.min()) / (spread or 1), dtype=np.float32)


def layouts(pixels: Pixels) -> Iterator[tuple[str, Pixels]]:
    """The same numbers [batch, C, height, width] as they lie in other memory: a raw pointer that ignores strides would
    read other pictures."""
    yield "NHWC, transposed view", np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    yield "reversed view", np.ascontiguousarray(pixels[::-1])[::-1]


def batch_sizes(max_batch: int) -> list[int]:
    """The batch sizes that a proof runs: 1, 2, 3, 7 and the largest."""
    return sorted({1, 2, _LAYOUTS_AT, 7, max_batch})
