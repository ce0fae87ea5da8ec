"""One call of `gaussport report`, from the pictures to the finished report."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import numpy as np

from gaussport.errors import GaussportError
from gaussport.export.bundle.manifest import EXPLAIN_FILE
from gaussport.export.bundle.store import Bundle
from gaussport.serving.explain.drawing import rendered
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.model_report.answers import Answers, Asked
from gaussport.serving.model_report.attention import PICTURES, AttentionSurvey, spread
from gaussport.serving.model_report.document import Report, report_of
from gaussport.serving.model_report.figures import confusion_figure, differences_figure, reliability_figure

Item = TypeVar("Item")


class Watch(Protocol):
    """Passes items on and shows how many of `total` have passed, under a title."""

    def __call__(self, items: Iterator[Item], total: int, title: str, /) -> Iterator[Item]: ...


def make_report(
    bundles: Sequence[Bundle],
    asked: Sequence[Asked],
    measured: datetime,
    most_mistakes: int,
    threads: int | None,
    watch: Watch,
) -> Report:
    """The report of the first bundle, beside the others. `asked` has one for each bundle.

    Raises:
        DataError: no picture could be read.
    """
    answers = [_all(one, bundle, watch) for one, bundle in zip(asked, bundles, strict=True)]
    files, limits = asked[0].files, asked[0].limits
    report = report_of(answers[0], answers[1:], files, measured, most_mistakes, limits)
    report.document["attention"] = _attention(report, bundles[0], answers[0], asked[0], threads, watch)
    figures = {
        "confusion": confusion_figure(report.scores.confusion, answers[0].manifest.labels),
        "reliability": reliability_figure(report.scores.bins, report.scores.numbers["expected_calibration_error"]),
    }
    if report.document["compared"]:
        figures["differences"] = differences_figure(report.document["compared"])
    report.figures |= {name: rendered(figure, "png") for name, figure in figures.items()}
    return report


def _all(asked: Asked, bundle: Bundle, watch: Watch) -> Answers:
    for _ in watch(asked.run(), asked.steps, f"asking {bundle.manifest.name}"):
        pass
    return asked.answers()


def _attention(
    report: Report, bundle: Bundle, answers: Answers, asked: Asked, threads: int | None, watch: Watch
) -> dict[str, Any]:
    if EXPLAIN_FILE not in bundle.manifest.files:
        return {"reason": f"The bundle has no {EXPLAIN_FILE}, so what its attention looks at is not told"}
    right = np.flatnonzero(answers.found == asked.files.targets[answers.read])
    chosen = spread(answers.read[right if len(right) else slice(None)].tolist(), PICTURES)
    try:
        survey = AttentionSurvey(Explainer(bundle, threads), asked.files, chosen, asked.limits)
    except GaussportError as error:
        return {"reason": str(error)}
    for _ in watch(survey.run(), len(chosen), "explaining"):
        pass
    report.figures |= survey.figures
    return {"pictures": len(chosen), "shown": survey.shown, "heads": survey.heads()}
