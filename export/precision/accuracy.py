"""How many labelled pictures a converted model gets right, beside the checkpoint it came from."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.export.calibration.pictures import Pictures
from gaussport.export.progress import Watch

Answers = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Pixels [B, C, height, width] → logits [B, classes]."""


@dataclass(frozen=True)
class Accuracy:
    """One model against the checkpoint in PyTorch, on the same pictures."""

    subject: str
    source: str
    pictures: int
    checkpoint: float
    """Share of the pictures that PyTorch gets right."""
    model: float
    agreement: float
    """Share of the pictures to which both give the same class, right or wrong."""

    @property
    def drop(self) -> float:
        """Percentage points lost; negative when the model is better."""
        return 100 * (self.checkpoint - self.model)


def classes_of(answers: Answers, pictures: Pictures, watch: Watch, title: str) -> NDArray[np.int64]:
    """The class of each picture, −1 where a logit is not finite."""
    rows = [answers(pixels) for pixels in watch(pictures.batches(), pictures.batch_count, title)]
    logits = np.concatenate(rows)
    return np.where(np.isfinite(logits).all(-1), logits.argmax(-1), -1)


def compared(subject: str, pictures: Pictures, checkpoint: NDArray[np.int64], model: NDArray[np.int64]) -> Accuracy:
    """Both models' classes, against the targets and each other."""
    targets = np.asarray(pictures.targets)
    right, also_right = float(np.mean(checkpoint == targets)), float(np.mean(model == targets))
    return Accuracy(subject, pictures.source, pictures.count, right, also_right, float(np.mean(checkpoint == model)))
