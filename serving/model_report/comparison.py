"""Two models on the same pictures: agreement, and whether one is better by more than chance."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.serving.model_report.answers import Answers
from gaussport.serving.model_report.intervals import mcnemar, paired_difference


def compared(ours: Answers, other: Answers, targets: NDArray[np.int64]) -> dict[str, Any]:
    """Over the pictures that both could read; `targets` are the classes of all files. Differences are ours − theirs."""
    both, mine, theirs = np.intersect1d(ours.read, other.read, assume_unique=True, return_indices=True)
    truth, found, expected = targets[both], ours.found[mine], other.found[theirs]
    right, also = found == truth, expected == truth
    won, lost, total = int((right & ~also).sum()), int((also & ~right).sum()), len(both)
    return {
        "model": other.manifest.name,
        "precision": other.manifest.precision,
        "pictures": total,
        "accuracy": float(also.mean()),
        "agreement": float((found == expected).mean()),
        "difference": float(right.mean() - also.mean()),
        "difference_interval": list(paired_difference(lost, won, total)),
        "only_ours_right": won,
        "only_theirs_right": lost,
        "mcnemar_p": mcnemar(lost, won),
        "largest_probability_change": float(np.abs(ours.shares[mine] - other.shares[theirs]).max()),
    }
