"""How many labelled pictures or texts a converted model gets right, beside the checkpoint it came from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import DataError
from gaussport.export.calibration.samples import Answers, Samples
from gaussport.export.progress import Watch

NO_ANSWER, UNREAD = -1, -2
"""The class of a sample for which a logit is NaN or infinite, and of one that cannot be read."""


@dataclass(frozen=True)
class Accuracy:
    """One model against the checkpoint in PyTorch, on the same pictures, or whatever `things` are."""

    subject: str
    source: str
    pictures: int
    checkpoint: float
    """Share of the pictures that PyTorch gets right."""
    model: float
    agreement: float
    """Share of the pictures to which both give the same class, right or wrong."""
    unreadable: tuple[str, ...] = ()
    """Those that cannot be read and were left out."""
    things: str = "pictures"

    def as_json(self) -> dict[str, Any]:
        """Its fields, the count under what was counted: `pictures` or `texts`."""
        return {self.things if name == "pictures" else name: value for name, value in vars(self).items()}

    @property
    def drop(self) -> float:
        """Percentage points lost; negative when the model is better."""
        return 100 * (self.checkpoint - self.model)


def classes_of(answers: Answers, samples: Samples, watch: Watch, title: str) -> NDArray[np.int64]:
    """The class of each sample, `NO_ANSWER` and `UNREAD` among them."""
    found = np.full(samples.count, UNREAD, np.int64)
    for shown, batch, _ in watch(samples.readable(), samples.batch_count, title):
        if shown:
            found[shown] = best(answers(batch))
    return found


def best(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """The class of each row, `NO_ANSWER` where a logit is not finite."""
    return np.where(np.isfinite(logits).all(-1), logits.argmax(-1), NO_ANSWER)


def compared(subject: str, samples: Samples, checkpoint: NDArray[np.int64], model: NDArray[np.int64]) -> Accuracy:
    """Both models' classes, against the targets and each other.

    Raises:
        DataError: none can be read.
    """
    read = checkpoint != UNREAD
    if not read.any():
        raise none_readable(samples)
    targets, checkpoint, model = np.asarray(samples.targets)[read], checkpoint[read], model[read]
    right, also_right = float(np.mean(checkpoint == targets)), float(np.mean(model == targets))
    agreement = float(np.mean(checkpoint == model))
    unread = tuple(samples.names[index] for index in np.flatnonzero(~read))
    return Accuracy(subject, samples.source, int(read.sum()), right, also_right, agreement, unread, samples.things)


def none_readable(samples: Samples) -> DataError:
    """That nothing of the data can be used."""
    return DataError(
        f"none of the {samples.count} {samples.things} of {samples.source} can be read: give others with --data"
    )
