"""Pictures explained one after another: decoded and prepared as the server does, a bad one an error among the others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import ImageError
from gaussport.models.image.decode import ImageLimits
from gaussport.models.image.prepare import prepare
from gaussport.models.image.preprocess import Preprocessing
from gaussport.serving.client import read_picture
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.explain.operators import View
from gaussport.serving.predictions import best, probabilities

_TOP_K = 5


@dataclass(frozen=True)
class ExplainedPicture:
    """One picture: its pixels [C, height, width] as the model saw them, what it answered and how each layer looked; or why
    it cannot be used."""

    path: Path
    pixels: NDArray[np.float32] | None = None
    predictions: list[dict[str, Any]] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    views: tuple[View, ...] = ()
    error: ImageError | None = None


def explained_pictures(explainer: Explainer, paths: Sequence[Path], limits: ImageLimits) -> Iterator[ExplainedPicture]:
    """Each picture in turn, one at a time: what is looked at of one may be large."""
    spec, labels = explainer.manifest.preprocessing, explainer.manifest.labels
    for path in paths:
        try:
            pixels, warnings = seen(path, spec, limits)
            explained = explainer.run(pixels[np.newaxis])
        except ImageError as error:
            yield ExplainedPicture(path, error=error)
            continue
        predictions = best(next(iter(probabilities(explained.logits))), labels, min(_TOP_K, len(labels)))
        yield ExplainedPicture(path, pixels, predictions, warnings, tuple(explained.views(0)))


def seen(path: Path, spec: Preprocessing, limits: ImageLimits) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """A file's picture as the model sees it, [C, height, width], and what its owner should know. Raises an ImageError."""
    prepared = prepare(read_picture(path), spec, limits)
    return prepared.pixels, prepared.warnings
