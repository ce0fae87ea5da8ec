"""The pictures that a model got wrong, the surest first."""

from typing import Any

import numpy as np

from gaussport.errors import ImageError
from gaussport.models.image.decode import ImageLimits
from gaussport.serving.explain.pictures import seen
from gaussport.serving.explain.seen import Picture
from gaussport.serving.model_report.answers import NO_ANSWER, Answers
from gaussport.serving.model_report.labelled import LabelledFiles

_SIDE = 96
"""Thumbnails are scaled so that no side is longer, in pixels."""


def mistakes(answers: Answers, files: LabelledFiles, most: int, limits: ImageLimits) -> list[dict[str, Any]]:
    """Each with its name, what is true, what was answered and how sure, and `thumbnail`: what the model saw, as a PNG in a
    data URI."""
    labels, spec = answers.manifest.labels, answers.manifest.preprocessing
    targets = files.targets[answers.read]
    sure = answers.shares.max(axis=1) if len(targets) else np.empty(0)
    wrong = np.flatnonzero((answers.found != targets) & (answers.found != NO_ANSWER))
    found = []
    for row in wrong[np.argsort(-sure[wrong], kind="stable")][:most]:
        index = int(answers.read[row])
        entry = {
            "picture": files.name(index),
            "label": labels[targets[row]],
            "answer": labels[answers.found[row]],
            "confidence": float(sure[row]),
            "probability_of_label": float(answers.shares[row, targets[row]]),
        }
        try:
            pixels = seen(files.paths[index], spec, limits)[0]
        except ImageError:  # it was readable a moment ago
            found.append(entry)
            continue
        found.append({**entry, "thumbnail": Picture.of(pixels, spec).data_uri(_SIDE)})
    return found
