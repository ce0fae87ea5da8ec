"""How well one model does: accuracy, per class, confusion, calibration."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.serving.model_report.answers import NO_ANSWER, Answers
from gaussport.serving.model_report.intervals import wilson

BINS = 15
"""Bins of the reliability diagram, of equal width: ((i − 1) / 15, i / 15]."""
_TOP = 5


@dataclass(frozen=True)
class Scores:
    """Everything that is told of one model. `confusion` is [classes, classes + 1]: true class by answer, the last column for
    no answer."""

    numbers: dict[str, Any]
    classes: list[dict[str, Any]]
    confusion: NDArray[np.int64]
    bins: list[dict[str, Any]]


def scores(answers: Answers, targets: NDArray[np.int64]) -> Scores:
    """`targets` [N] are the classes of the pictures that were read."""
    labels, total = answers.manifest.labels, len(targets)
    right = answers.found == targets
    shares = answers.shares.astype(np.float64)
    confusion = np.zeros((len(labels), len(labels) + 1), dtype=np.int64)
    np.add.at(confusion, (targets, np.where(answers.found == NO_ANSWER, len(labels), answers.found)), 1)
    classes = [_of_class(label, index, confusion) for index, label in enumerate(labels)]
    shown = [entry for entry in classes if entry["pictures"]]
    top = min(_TOP, len(labels))
    bins = reliability(shares.max(axis=1), right)
    numbers = {
        "pictures": total,
        "accuracy": _share(int(right.sum()), total),
        "top_k": {"k": top, **_share(int(_in_top(shares, targets, answers.found, top).sum()), total)},
        "balanced_accuracy": float(np.mean([entry["recall"] for entry in shown])),
        "macro_f1": float(np.mean([entry["f1"] for entry in shown])),
        "log_loss": float(-np.log(np.maximum(shares[np.arange(total), targets], 1e-15)).mean()),
        "brier": float(((shares - np.eye(len(labels))[targets]) ** 2).sum(axis=1).mean()),
        "mean_confidence": float(shares.max(axis=1).mean()),
        "expected_calibration_error": sum(entry["pictures"] * abs(entry["gap"]) for entry in bins) / total,
        "no_answer": int((answers.found == NO_ANSWER).sum()),
    }
    return Scores(numbers, classes, confusion, bins)


def reliability(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """The bins that have pictures: how sure the model was, and how often it was right."""
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    found = []
    for number in np.unique(place):
        mine = place == number
        sure, share = float(confidence[mine].mean()), float(right[mine].mean())
        found.append(
            {
                "from": int(number) / BINS,
                "to": (int(number) + 1) / BINS,
                "pictures": int(mine.sum()),
                "confidence": sure,
                "accuracy": share,
                "gap": sure - share,
            }
        )
    return found


def _in_top(
    shares: NDArray[np.float64], targets: NDArray[np.int64], found: NDArray[np.int64], top: int
) -> NDArray[np.bool_]:
    """Whether the true class is among the `top` best; equal ones by index, as the server lists them."""
    order = np.argsort(-shares, axis=1, kind="stable")[:, :top]
    hits: NDArray[np.bool_] = (order == targets[:, None]).any(axis=1) & (found != NO_ANSWER)
    return hits


def _of_class(label: str, index: int, confusion: NDArray[np.int64]) -> dict[str, Any]:
    pictures, right, answered = int(confusion[index].sum()), int(confusion[index, index]), int(confusion[:, index].sum())
    recall, precision = right / pictures if pictures else 0.0, right / answered if answered else 0.0
    return {
        "label": label,
        "pictures": pictures,
        "right": right,
        "recall": recall,
        "recall_interval": list(wilson(right, pictures)),
        "precision": precision,
        "f1": 2 * right / (pictures + answered) if right else 0.0,
    }


def _share(right: int, total: int) -> dict[str, Any]:
    return {"right": right, "share": right / total, "interval": list(wilson(right, total))}
