"""The report as one HTML page that needs nothing else: styles, diagrams and thumbnails are in it."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gaussport.serving.model_report.document import Report
from gaussport.serving.model_report.words import (
    attention_columns,
    between,
    number,
    p_value,
    percent,
    points,
    summary,
    verdict,
    with_interval,
)

_STYLE = Path(__file__).with_name("page.css")
_SHOWN = 200  # classes and confusions that the page lists; the JSON has all


def page(report: Report) -> str:
    """The whole page."""
    document = report.document
    title = _text(f"{document['model']['name']}: model report")
    parts = [
        _head(document),
        _classes(report),
        _calibration(report),
        _mistakes(report),
        _compared(report),
        _attention(report),
    ]
    parts.append(_origin(document))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE.read_text('utf-8')}</style></head>\n<body><main>\n<h1>{title}</h1>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def _head(document: Mapping[str, Any]) -> str:
    data, model = document["data"], document["model"]
    run = ", ".join(f"{name} {value}" for name, value in model["run_by"].items())
    said = f"{data['pictures']:,} labelled pictures of {data['folder']}, {document['measured']}; {run}."
    unread = ""
    if data["unreadable"]:
        rows = [[_text(name), _text(why)] for name, why in list(data["unreadable"].items())[:_SHOWN]]
        unread = f"<h3>{len(data['unreadable']):,} pictures cannot be read</h3>" + _table(["picture", "why"], rows)
    return (
        f'<p class="big">{_text(with_interval(document["scores"]["accuracy"]))} of the answers are right.</p>'
        f'<p class="dim">{_text(said)} Intervals: {_text(document["interval"])}.</p>'
        + _table(["measure", "value"], [[_text(name), _text(value)] for name, value in summary(document)])
        + unread
    )


def _classes(report: Report) -> str:
    document = report.document
    rows = [
        [
            _text(entry["label"]),
            str(entry["pictures"]),
            percent(entry["recall"]),
            between(entry["recall_interval"], percent),
            percent(entry["precision"]),
            f"{entry['f1']:.3f}",
        ]
        for entry in document["classes"][:_SHOWN]
    ]
    wrong = [pair for pair in document["confusion"] if pair["answer"] != pair["label"]][:20]
    confused = [[_text(p["label"]), _text(p["answer"] or "none"), str(p["pictures"])] for p in wrong]
    return (
        "<h2>Classes</h2>"
        + _figure(
            report, "confusion", "Confusion matrix: true classes in rows, answers in columns, shaded by share of the row"
        )
        + _table(["class", "pictures", "recall", "95 %", "precision", "F1"], rows)
        + _more(len(document["classes"]), "classes")
        + ("<h3>Most frequent confusions</h3>" + _table(["true", "answer", "pictures"], confused) if confused else "")
    )


def _calibration(report: Report) -> str:
    told = report.document["calibration"]
    rows = [
        [
            f"{entry['from']:.3f} to {entry['to']:.3f}",
            str(entry["pictures"]),
            percent(entry["confidence"]),
            percent(entry["accuracy"]),
            points(entry["gap"]),
        ]
        for entry in told["bins"]
    ]
    error = report.document["scores"]["expected_calibration_error"]
    return (
        f"<h2>Calibration</h2><p>Expected calibration error {error:.4f}: the mean gap between confidence and accuracy, "
        f"weighted by pictures, in {_text(told['binning'])}.</p>"
        + _figure(
            report,
            "reliability",
            "Reliability diagram: share right against confidence; bars on the dashed line are calibrated",
        )
        + _table(["confidence", "pictures", "mean confidence", "accuracy", "gap, points"], rows)
    )


def _mistakes(report: Report) -> str:
    if not report.pictures:
        return ""
    items = []
    for entry in report.pictures:
        words = f"{entry['picture']}: {entry['label']}, answered {entry['answer']}"
        image = f'<img alt="{_text(words)}" src="{entry["thumbnail"]}">' if "thumbnail" in entry else ""
        items.append(
            f"<li>{image}<b>{_text(entry['label'])}</b>, answered <b>{_text(entry['answer'])}</b> with "
            f'{percent(entry["confidence"])}<br><span class="dim">{_text(entry["picture"])}</span></li>'
        )
    return f'<h2>Surest mistakes</h2><p class="dim">As the model saw them.</p><ul class="mistakes">{"".join(items)}</ul>'


def _compared(report: Report) -> str:
    if not report.document["compared"]:
        return ""
    rows = [
        [
            _text(entry["model"]),
            entry["precision"],
            percent(entry["accuracy"]),
            percent(entry["agreement"]),
            f"{entry['only_ours_right']} : {entry['only_theirs_right']}",
            points(entry["difference"]),
            between(entry["difference_interval"], points),
            p_value(entry["mcnemar_p"]),
            verdict(entry),
        ]
        for entry in report.document["compared"]
    ]
    head = ["beside", "precision", "its accuracy", "same answer", "right alone, this : that"]
    return (
        "<h2>What changed by precision</h2><p>This model less each other one, on the same pictures.</p>"
        + _table([*head, "difference, points", "95 %", "McNemar p", ""], rows)
        + _figure(report, "differences", "Differences of accuracy with their intervals; the dashed line is no difference")
    )


def _attention(report: Report) -> str:
    told = report.document["attention"]
    if "reason" in told:
        return f"<h2>Attention</h2><p>{_text(told['reason'])}.</p>"
    columns = attention_columns(told["heads"])
    rows = [[_text(h["layer"]), str(h["head"]), *(number(h[name]) for name in columns)] for h in told["heads"]]
    shown = told["shown"]
    return (
        f"<h2>Attention</h2><p>Means over {told['pictures']} pictures; the figures show {_text(shown['picture'])}.</p>"
        + _table(["layer", "head", *(name.replace("_", " ") for name in columns)], rows)
        + _figure(report, "heads", f"What each head looked at in {shown['picture']} from the middle cell, which is framed")
        + _figure(report, "layers", "Each layer as a whole")
    )


def _origin(document: Mapping[str, Any]) -> str:
    model, origin = document["model"], document["model"]["provenance"]
    rows = [
        ["family", _text(model["family"])],
        ["precision", model["precision"]],
        ["model", f"{model['bytes']:,} bytes, opset {model['opset']}, SHA-256 {model['model_sha256']}"],
        ["checkpoint", _text(f"{origin['checkpoint']}, SHA-256 {origin['checkpoint_sha256']}")],
        ["exported", _text(origin["created"])],
        ["configuration", _text(", ".join(f"{key} {value}" for key, value in model["config"].items()))],
        ["preprocessing", _text(", ".join(f"{key} {value}" for key, value in model["preprocessing"].items()))],
        ["measured with", _text(", ".join(f"{name} {value}" for name, value in document["tools"].items()))],
    ]
    return "<h2>Model</h2>" + _table(["", ""], rows)


def _figure(report: Report, name: str, words: str) -> str:
    if name not in report.figures:
        return ""
    data = base64.b64encode(report.figures[name]).decode()
    image = f'<img alt="{_text(words)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{_text(words)}</figcaption></figure>"


def _more(count: int, what: str) -> str:
    return f'<p class="dim">{count - _SHOWN:,} more {what} are in report.json.</p>' if count > _SHOWN else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    names = "".join(f'<th scope="col">{_text(name)}</th>' for name in head) if any(head) else ""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table>{f"<thead><tr>{names}</tr></thead>" if names else ""}<tbody>{body}</tbody></table></div>'
    )


def _text(value: object) -> str:
    return escape(str(value), quote=True)
