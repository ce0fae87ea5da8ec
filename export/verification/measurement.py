"""What a model does on labelled pictures or texts, beside a reference: accuracy, per class, every answer that changed."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.export.calibration.samples import Answers, Samples
from gaussport.export.precision.accuracy import NO_ANSWER, best, none_readable
from gaussport.export.progress import Watch


@dataclass(frozen=True)
class Changed:
    """A picture that the two models put into different classes. `tie`: for the reference the two classes were so close
    that the tolerance between the models explains the change."""

    index: int
    name: str
    target: int
    reference: int
    found: int
    tie: bool


@dataclass(frozen=True)
class ClassScore:
    """One class: its pictures, and how many of them the model and the reference get right."""

    label: str
    pictures: int
    right: int
    reference_right: int | None


@dataclass(frozen=True)
class Measurement:
    """Everything that was measured. `reference` names the other model, None when there was none."""

    source: str
    pictures: int
    unreadable: tuple[str, ...]
    accuracy: float
    classes: tuple[ClassScore, ...]
    reference: str | None = None
    reference_accuracy: float | None = None
    agreement: float | None = None
    """Share of the pictures that both put into the same class, right or wrong."""
    changed: tuple[Changed, ...] = ()
    things: str = "pictures"

    @property
    def thing(self) -> str:
        """One of them."""
        return self.things.removesuffix("s")

    @property
    def drop(self) -> float | None:
        """Percentage points lost against the reference; negative when the model is better."""
        return None if self.reference_accuracy is None else 100 * (self.reference_accuracy - self.accuracy)

    @property
    def confusion(self) -> list[tuple[int, int, int]]:
        """How often the reference's class became another: (reference, found, pictures), the most frequent first."""
        pairs = Counter((change.reference, change.found) for change in self.changed)
        return [(*pair, number) for pair, number in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))]


def measure(
    model: Answers,
    samples: Samples,
    labels: tuple[str, ...],
    tolerance: float,
    watch: Watch,
    reference: tuple[str, Answers] | None = None,
) -> Measurement:
    """Show both models every sample. One that cannot be read is named and left out.

    Raises:
        DataError: none can be read.
    """
    read: list[int] = []
    unreadable: list[str] = []
    rows, others = [], []
    for shown, batch, unread in watch(samples.readable(), samples.batch_count, f"labelled {samples.things}"):
        read += shown
        unreadable += [samples.names[index] for index in unread]
        if shown:
            rows.append(model(batch))
            if reference is not None:
                others.append(reference[1](batch))
    if not rows:
        raise none_readable(samples)
    targets = np.asarray(samples.targets)[read]
    found = best(np.concatenate(rows))
    if reference is None:
        share, classes = _share(found == targets), _by_class(labels, targets, found, None)
        return Measurement(samples.source, len(read), tuple(unreadable), share, classes, things=samples.things)
    logits = np.concatenate(others)
    expected = best(logits)
    changed = tuple(
        Changed(
            read[row],
            samples.names[read[row]],
            int(targets[row]),
            int(expected[row]),
            int(found[row]),
            _is_tie(logits[row], int(expected[row]), int(found[row]), tolerance),
        )
        for row in np.flatnonzero(found != expected)
    )
    return Measurement(
        samples.source,
        len(read),
        tuple(unreadable),
        _share(found == targets),
        _by_class(labels, targets, found, expected),
        reference[0],
        _share(expected == targets),
        _share(found == expected),
        changed,
        samples.things,
    )


def _share(hits: NDArray[np.bool_]) -> float:
    return float(np.mean(hits))


def _by_class(
    labels: tuple[str, ...], targets: NDArray[np.int64], found: NDArray[np.int64], expected: NDArray[np.int64] | None
) -> tuple[ClassScore, ...]:
    """Every class that has pictures."""
    scores = []
    for index in np.unique(targets):
        mine = targets == index
        also = None if expected is None else int(np.count_nonzero(expected[mine] == index))
        scores.append(ClassScore(labels[index], int(mine.sum()), int(np.count_nonzero(found[mine] == index)), also))
    return tuple(scores)


def _is_tie(logits: NDArray[np.float32], expected: int, found: int, tolerance: float) -> bool:
    if NO_ANSWER in (expected, found):
        return False
    return bool(logits[expected] - logits[found] <= 2 * tolerance)  # each of the two logits may move by the tolerance
