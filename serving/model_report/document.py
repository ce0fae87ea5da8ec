"""The report as one JSON object; page and card are made from it and add nothing."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from gaussport import __version__
from gaussport.errors import DataError
from gaussport.models.image.decode import ImageLimits
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.model_report.answers import Answers
from gaussport.serving.model_report.comparison import compared
from gaussport.serving.model_report.intervals import Z95
from gaussport.serving.model_report.labelled import LabelledFiles
from gaussport.serving.model_report.mistakes import mistakes
from gaussport.serving.model_report.scores import BINS, Scores, scores

BINNING = f"{BINS} bins of equal width over the confidence in the answer, each open below and closed above"


@dataclass
class Report:
    """`document` is what JSON, page and card tell; `scores` has what diagrams are drawn from, `figures` are PNGs by name,
    `pictures` the surest mistakes with their thumbnails."""

    document: dict[str, Any]
    scores: Scores
    pictures: list[dict[str, Any]]
    figures: dict[str, bytes] = field(default_factory=dict)


def report_of(
    answers: Answers,
    others: Sequence[Answers],
    files: LabelledFiles,
    measured: datetime,
    most_mistakes: int,
    limits: ImageLimits,
) -> Report:
    """The report without its attention and without figures. DataError when no picture could be read."""
    if not len(answers.read) or not all(len(other.read) for other in others):
        raise DataError(f"none of the {len(files.paths)} pictures of {files.root} can be read: give others with --data")
    found = scores(answers, files.targets[answers.read])
    wrong = mistakes(answers, files, most_mistakes, limits)
    document = {
        "model": model_facts(answers),
        "data": {"folder": files.root.name or str(files.root), "pictures": len(answers.read), "unreadable": answers.unread},
        "measured": measured.isoformat(timespec="seconds"),
        "tools": {
            "gaussport": __version__,
            "onnxruntime": onnxruntime.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "interval": f"95 % (z = {Z95:.3f}): Wilson's for shares, Agresti and Min's for differences on the same pictures",
        "scores": found.numbers,
        "calibration": {"binning": BINNING, "bins": found.bins},
        "classes": found.classes,
        "confusion": _confusion(found, answers.manifest.labels),
        "mistakes": [{key: value for key, value in entry.items() if key != "thumbnail"} for entry in wrong],
        "compared": [compared(answers, other, files.targets) for other in others],
    }
    return Report(document, found, wrong)


def model_facts(answers: Answers) -> dict[str, Any]:
    """What the bundle says of its model, and what ran it."""
    manifest = answers.manifest
    return {
        "name": manifest.name,
        "version": manifest.version,
        "family": manifest.family,
        "precision": manifest.precision,
        "kept_fp32": manifest.kept_fp32,
        "config": manifest.config,
        "labels": list(manifest.labels),
        "picture": manifest.preprocessing.tensor_shape,
        "preprocessing": manifest.preprocessing.model_dump(mode="json"),
        "operators": manifest.operators,
        "opset": manifest.opset,
        "provenance": manifest.provenance.model_dump(mode="json"),
        "stated_metrics": manifest.metrics,
        "model_sha256": manifest.model_sha256,
        "bytes": sum(record.bytes for name, record in manifest.files.items() if name.startswith("model.onnx")),
        "run_by": answers.facts,
    }


def _confusion(found: Scores, labels: Sequence[str]) -> list[Mapping[str, Any]]:
    """Every pair that occurs, the most frequent confusion first; an answer of None is no answer."""
    rows, columns = np.nonzero(found.confusion)
    pairs = [
        {
            "label": labels[int(row)],
            "answer": labels[int(column)] if column < len(labels) else None,
            "pictures": int(found.confusion[row, column]),
        }
        for row, column in zip(rows, columns, strict=True)
    ]
    return sorted(pairs, key=lambda pair: (pair["label"] == pair["answer"], -int(str(pair["pictures"]))))
