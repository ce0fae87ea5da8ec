"""How many labelled pictures a converted model gets right, beside the checkpoint it came from."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import DataError
from gaussport.export.calibration.pictures import Pictures
from gaussport.export.progress import Watch

Answers = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Pixels [B, C, height, width] → logits [B, classes]."""
NO_ANSWER, UNREAD = -1, -2
"""The class of a picture for which a logit is NaN or infinite, and of one that cannot be read."""


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
    unreadable: tuple[str, ...] = ()
    """Pictures that cannot be read and were left out."""

    @property
    def drop(self) -> float:
        """Percentage points lost; negative when the model is better."""
        return 100 * (self.checkpoint - self.model)


def classes_of(answers: Answers, pictures: Pictures, watch: Watch, title: str) -> NDArray[np.int64]:
    """The class of each picture, `NO_ANSWER` and `UNREAD` among them."""
    found = np.full(pictures.count, UNREAD, np.int64)
    for shown, pixels, _ in watch(pictures.readable(), pictures.batch_count, title):
        if shown:
            found[shown] = best(answers(pixels))
    return found


def best(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """The class of each row, `NO_ANSWER` where a logit is not finite."""
    return np.where(np.isfinite(logits).all(-1), logits.argmax(-1), NO_ANSWER)


def compared(subject: str, pictures: Pictures, checkpoint: NDArray[np.int64], model: NDArray[np.int64]) -> Accuracy:
    """Both models' classes, against the targets and each other.

    Raises:
        DataError: no picture can be read.
    """
    read = checkpoint != UNREAD
    if not read.any():
        raise none_readable(pictures)
    targets, checkpoint, model = np.asarray(pictures.targets)[read], checkpoint[read], model[read]
    right, also_right = float(np.mean(checkpoint == targets)), float(np.mean(model == targets))
    agreement = float(np.mean(checkpoint == model))
    unread = tuple(pictures.names[index] for index in np.flatnonzero(~read))
    return Accuracy(subject, pictures.source, int(read.sum()), right, also_right, agreement, unread)


def none_readable(pictures: Pictures) -> DataError:
    return DataError(f"none of the {pictures.count} pictures of {pictures.source} can be read: give others with --data")
