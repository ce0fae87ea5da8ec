"""What one bundle answers to labelled pictures, run as the server runs it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import ImageError
from gaussport.export.bundle.manifest import Manifest
from gaussport.models.image.decode import ImageLimits
from gaussport.serving.explain.pictures import seen
from gaussport.serving.model_report.labelled import LabelledFiles
from gaussport.serving.predictions import probabilities
from gaussport.serving.runtime import Runtime

NO_ANSWER = -1
"""The class of a picture for which a logit is NaN or infinite."""


@dataclass(frozen=True)
class Answers:
    """One model's answers to the pictures that could be read.

    Attributes:
        read: [N] which of the files; `unread` has the others' names and why.
        shares: [N, classes] probabilities; a picture without an answer has all zero.
        found: [N] the best class, or `NO_ANSWER`.
    """

    manifest: Manifest
    facts: dict[str, str]
    read: NDArray[np.int64]
    unread: dict[str, str]
    shares: NDArray[np.float32]
    found: NDArray[np.int64]


@dataclass
class Asked:
    """Runs a bundle's model over the files, `size` at a time."""

    runtime: Runtime
    files: LabelledFiles
    limits: ImageLimits
    size: int

    def __post_init__(self) -> None:
        self.size = 1 if self.runtime.fixed_batch is not None else min(self.size, self.runtime.max_batch)
        self._batches: list[NDArray[np.float32]] = []
        self._read: list[int] = []
        self._unread: dict[str, str] = {}

    @property
    def steps(self) -> int:
        """How many batches there are."""
        return -(-len(self.files.paths) // self.size)

    def run(self) -> Iterator[int]:
        """Answer all pictures, batch by batch; yields the number of each batch that is done."""
        spec = self.runtime.manifest.preprocessing
        for step in range(self.steps):
            pixels = []
            for index in range(step * self.size, min((step + 1) * self.size, len(self.files.paths))):
                try:
                    pixels.append(seen(self.files.paths[index], spec, self.limits)[0])
                except ImageError as error:
                    self._unread[self.files.name(index)] = str(error)
                else:
                    self._read.append(index)
            if pixels:
                self._batches.append(self.runtime.run(np.stack(pixels)))
            yield step

    def answers(self) -> Answers:
        """All of them, once `run` has ended."""
        logits = np.concatenate(self._batches) if self._batches else np.empty((0, len(self.runtime.manifest.labels)))
        finite = np.isfinite(logits).all(axis=1)
        shares = np.zeros(logits.shape, dtype=np.float32)
        if finite.any():
            shares[finite] = probabilities(logits[finite].astype(np.float32))
        found = np.where(finite, logits.argmax(axis=1), NO_ANSWER) if len(logits) else np.empty(0, np.int64)
        read = np.array(self._read, dtype=np.int64)
        return Answers(self.runtime.manifest, self.runtime.facts, read, self._unread, shares, found)
