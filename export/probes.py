"""What a proof feeds the models: seeded noise, pictures with the statistics of natural ones, the edges of what
preprocessing can make, in every batch size and in several memory layouts; beside the pictures, whatever else they read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.manifest import FurtherInput
from gaussport.export.comparison import C_ORDER
from gaussport.export.inputs import Array, Inputs, rows_of
from gaussport.models.image.preprocess import Preprocessing

Pixels = NDArray[np.float32]

PIXELS = "pixels"
"""The input that takes pictures, in the graphs that we write."""

_KINDS = ("noise", "scene", "zeros", "white", "normal", "black", "checks", "one patch")
_SEEDS = {1: 1, 2: 2, 7: 2}  # how many mixtures of a batch size; a larger batch is one mixture with many rows
LAYOUTS_AT = 3
"""The batch size at which every memory layout is fed: more than one row, and odd."""


@dataclass(frozen=True)
class Question:
    """One batch: what it shows, how it lies in memory, and what the model reads."""

    probe: str
    inputs: Inputs
    layout: str = C_ORDER

    @property
    def rows(self) -> int:
        return rows_of(self.inputs)


class Asks(Protocol):
    """Makes the batches of a proof."""

    def questions(self, max_batch: int) -> list[Question]:
        """Every batch that a proof runs: all sizes up to `max_batch`, and all layouts."""

    def batches(self, size: int) -> Iterator[tuple[str, Inputs]]:
        """Batches of that size by name."""

    def with_samples(self, samples: Array) -> Inputs:
        """What the model reads with samples of its data [batch, …], the pictures or the tokens."""


@dataclass(frozen=True)
class Probes:
    """Makes batches for models that take pixels [batch, *shape] between `low` and `high`, each [channels]."""

    shape: tuple[int, int, int]
    low: Pixels
    high: Pixels
    patch: int | None = None
    """Side of the patch that is lit alone; an eighth of the picture when it is not known."""
    name: str = PIXELS
    further: tuple[FurtherInput, ...] = ()
    """What the models read beside the pictures."""

    @classmethod
    def of(
        cls,
        preprocessing: Preprocessing,
        patch: int | None = None,
        name: str = PIXELS,
        further: tuple[FurtherInput, ...] = (),
    ) -> "Probes":
        """Probes whose black and white are those that the preprocessing makes."""
        mean, std = (np.asarray(x, dtype=np.float32) for x in (preprocessing.mean, preprocessing.std))
        return cls(preprocessing.tensor_shape, (0 - mean) / std, (1 - mean) / std, patch, name, further)

    def questions(self, max_batch: int, photographs: Sequence[Pixels] = ()) -> list[Question]:
        """Every batch that a proof runs: all sizes, all layouts, and the photographs [C, height, width] one by one."""
        asked = [Question(name, inputs) for size in batch_sizes(max_batch) for name, inputs in self.batches(size)]
        odd = next(question for question in asked if question.rows == LAYOUTS_AT)
        asked += [Question(odd.probe, inputs, layout) for layout, inputs in layouts(odd.inputs)]
        shown = [self.with_samples(picture[np.newaxis], seed) for seed, picture in enumerate(photographs)]
        return asked + [Question(f"photograph {n}", inputs) for n, inputs in enumerate(shown, start=1)]

    def batches(self, size: int) -> Iterator[tuple[str, Inputs]]:
        """Batches of that size by name: alone at size 1, else mixed so that no two rows are equal."""
        for seed in range(_SEEDS.get(size, 1)):
            random = np.random.default_rng([size, seed])
            if size == 1:
                for turn, kind in enumerate(_KINDS):
                    yield kind, self._batch(self._one(kind, random)[np.newaxis], [turn], turn)
            else:
                start = 3 * seed + size  # so that the small sizes do not all show the same few kinds
                turns = [row + start if row < len(_KINDS) else row % 2 for row in range(size)]
                pictures = np.stack([self._one(_KINDS[turn % len(_KINDS)], random) for turn in turns])
                yield f"mixture {seed + 1}", self._batch(pictures, turns, seed)

    def with_samples(self, pictures: Pixels, seed: int = 0) -> Inputs:
        """The pictures [batch, C, height, width], each beside noise in the ranges of the further inputs."""
        return self._batch(pictures, None, seed)

    def _batch(self, pictures: Pixels, turns: Sequence[int] | None, seed: int) -> Inputs:
        """The pictures, each beside numbers of the kind whose turn it is, else noise; no two inputs of the same kind."""
        random = np.random.default_rng([len(pictures), seed, len(_KINDS)])
        inputs: dict[str, Array] = {self.name: pictures}
        for offset, spec in enumerate(self.further, start=1):
            kinds = [0] * len(pictures) if turns is None else [turn + offset for turn in turns]
            inputs[spec.name] = np.stack([beside(spec, kind, random) for kind in kinds])
        return inputs

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


def beside(spec: FurtherInput, turn: int, random: np.random.Generator) -> Array:
    """One row of a further input: noise in its range, at some turns one end of the range or both alternating."""
    shape = tuple(int(axis) for axis in spec.shape[1:])
    whole = spec.dtype in ("int64", "int32", "bool")
    noise = random.integers(int(spec.low), int(spec.high), shape, endpoint=True) if whole else random.random(shape)
    drawn = noise if whole else spec.low + (spec.high - spec.low) * noise
    alternating = np.where(np.indices(shape).sum(0) % 2 == 0, spec.low, spec.high)
    kinds = (drawn, drawn, np.full(shape, spec.low), drawn, np.full(shape, spec.high), drawn, alternating)
    return kinds[turn % len(kinds)].astype(spec.dtype)


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


def layouts(inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    """The same numbers [batch, …] as they lie in other memory: a raw pointer that ignores strides would read others."""
    yield "NHWC, transposed view", {name: _channels_last(array) for name, array in inputs.items()}
    yield "reversed view", {name: np.ascontiguousarray(array[::-1])[::-1] for name, array in inputs.items()}


def _channels_last(array: Array) -> Array:
    if array.ndim <= 2:  # no channels: column by column
        return np.asfortranarray(array)
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def batch_sizes(max_batch: int) -> list[int]:
    """The batch sizes that a proof runs: 1, 2, 3, 7 and the largest."""
    return sorted({1, 2, LAYOUTS_AT, 7, max_batch})
