"""The model card: Markdown under YAML metadata, by the conventions of the Hugging Face Hub.

https://github.com/huggingface/hub-docs/blob/main/modelcard.md
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gaussport.serving.model_report.words import (
    attention_columns,
    between,
    number,
    p_value,
    percent,
    points,
    summary,
    verdict,
)

_SHOWN = 50  # classes, confusions and mistakes that the card lists; the JSON has all


def card(document: Mapping[str, Any], figures: Iterable[str], license: str | None) -> str:
    """The whole card; `figures` are the names of the PNG files beside it."""
    model, figures = document["model"], set(figures)
    parts = [
        f"---\n{_metadata(document, license)}---\n\n# {_text(model['name'])}",
        _details(document),
        _use(model),
        _evaluation(document, figures),
        _compared(document, figures),
        _attention(document, figures),
        _limits(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _metadata(document: Mapping[str, Any], license: str | None) -> str:
    """YAML whose every scalar is written as JSON, which YAML contains."""
    model, scores, data = document["model"], document["scores"], document["data"]
    metrics = [
        ("accuracy", scores["accuracy"]["share"], "Accuracy"),
        ("f1", scores["macro_f1"], "Macro F1"),
        ("top_k_accuracy", scores["top_k"]["share"], f"Top-{scores['top_k']['k']} accuracy"),
        ("expected_calibration_error", scores["expected_calibration_error"], "Expected calibration error"),
    ]
    lines = [] if license is None else [f"license: {json.dumps(license)}"]
    lines += ["library_name: onnx", "pipeline_tag: image-classification", "tags:"]
    lines += [f"- {json.dumps(tag)}" for tag in ("onnx", "gaussport", model["family"], model["precision"])]
    lines += ["metrics:", "- accuracy", "- f1", "model-index:", f"- name: {json.dumps(model['name'])}", "  results:"]
    lines += ["  - task:", "      type: image-classification", "      name: Image Classification", "    dataset:"]
    lines += [f"      type: {json.dumps(data['folder'])}", f"      name: {json.dumps(data['folder'])}", "    metrics:"]
    for kind, value, name in metrics:
        lines += [f"    - type: {kind}", f"      value: {round(value, 6)}", f"      name: {json.dumps(name)}"]
    return "\n".join(lines) + "\n"


def _details(document: Mapping[str, Any]) -> str:
    model, origin = document["model"], document["model"]["provenance"]
    channels, height, width = model["picture"]
    rows = [
        ("family", model["family"]),
        ("precision", model["precision"]),
        ("labels", f"{len(model['labels'])}: {', '.join(model['labels'][:10])}{' …' if len(model['labels']) > 10 else ''}"),
        ("pictures", f"{height}×{width}, {channels} channel{'s' if channels > 1 else ''}"),
        ("model file", f"{model['bytes']:,} bytes, opset {model['opset']}, SHA-256 `{model['model_sha256']}`"),
        ("checkpoint", f"{origin['checkpoint']}, SHA-256 `{origin['checkpoint_sha256']}`"),
        ("made", f"{origin['created']} with {', '.join(f'{name} {v}' for name, v in origin['tools'].items())}"),
    ]
    if model["stated_metrics"]:
        stated = ", ".join(f"{name} {value:.4g}" for name, value in model["stated_metrics"].items())
        rows.append(("stated by the checkpoint", stated))
    if model["kept_fp32"]:
        rows.append(("kept in float32", ", ".join(model["kept_fp32"])))
    if origin["assumed"]:
        rows.append(("assumed at export, stated by nobody", ", ".join(origin["assumed"])))
    return "## Model\n\n" + _table(["", ""], ((name, _cell(value)) for name, value in rows))


def _use(model: Mapping[str, Any]) -> str:
    return (
        "## Use\n\nA gaussport bundle: an ONNX model with its labels and preprocessing.\n\n"
        "    gaussport classify BUNDLE picture.png\n    gaussport serve BUNDLE\n\n"
        f"It answers one of its {len(model['labels'])} labels whatever it is shown."
    )


def _evaluation(document: Mapping[str, Any], figures: set[str]) -> str:
    data, run = document["data"], document["model"]["run_by"]
    by = ", ".join(f"{name} {value}" for name, value in run.items())
    said = f"{data['pictures']:,} labelled pictures of {_text(data['folder'])}, run by {by}"
    unread = f"; {len(data['unreadable']):,} more cannot be read" if data["unreadable"] else ""
    text = f"## Evaluation\n\nOn {said}{unread}, {document['measured']}. Intervals: {document['interval']}.\n\n"
    text += _table(["measure", "value"], summary(document))
    text += _image(figures, "confusion", "Confusion matrix: true classes in rows, answers in columns")
    text += _image(figures, "reliability", f"Reliability diagram, {document['calibration']['binning']}")
    text += f"\n\nCalibration error: {document['calibration']['binning']}; "
    text += "the mean gap between confidence and accuracy, weighted by pictures."
    text += "\n\n### Classes\n\n"
    head = ["class", "pictures", "recall", "95 %", "precision", "F1"]
    rows = [
        [
            _cell(entry["label"]),
            entry["pictures"],
            percent(entry["recall"]),
            between(entry["recall_interval"], percent),
            percent(entry["precision"]),
            f"{entry['f1']:.3f}",
        ]
        for entry in document["classes"][:_SHOWN]
    ]
    text += _table(head, rows) + _more(len(document["classes"]))
    if document["mistakes"]:
        rows = [
            [_cell(m["picture"]), _cell(m["label"]), _cell(m["answer"]), percent(m["confidence"])]
            for m in document["mistakes"][:_SHOWN]
        ]
        text += "\n\n### Surest mistakes\n\n" + _table(["picture", "true", "answer", "confidence"], rows)
    return text


def _compared(document: Mapping[str, Any], figures: set[str]) -> str:
    if not document["compared"]:
        return ""
    head = ["beside", "precision", "its accuracy", "same answer", "difference, points", "95 %", "McNemar p", ""]
    rows = [
        [
            _cell(entry["model"]),
            entry["precision"],
            percent(entry["accuracy"]),
            percent(entry["agreement"]),
            points(entry["difference"]),
            between(entry["difference_interval"], points),
            p_value(entry["mcnemar_p"]),
            verdict(entry),
        ]
        for entry in document["compared"]
    ]
    text = "## What changed by precision\n\nThis model less each other one, on the same pictures.\n\n" + _table(head, rows)
    return text + _image(figures, "differences", "Differences of accuracy with their intervals")


def _attention(document: Mapping[str, Any], figures: set[str]) -> str:
    told = document["attention"]
    if "reason" in told:
        return f"## Attention\n\n{_text(told['reason'])}."
    columns = attention_columns(told["heads"])
    rows = [[_cell(h["layer"]), h["head"], *(number(h[name]) for name in columns)] for h in told["heads"][: 2 * _SHOWN]]
    text = f"## Attention\n\nMeans over {told['pictures']} pictures.\n\n"
    text += _table(["layer", "head", *(name.replace("_", " ") for name in columns)], rows)
    text += _image(figures, "heads", f"What each head looked at in {told['shown']['picture']}")
    return text + _image(figures, "layers", "Each layer as a whole")


def _limits() -> str:
    return """## Limits

These numbers hold for pictures like those of this folder. What the model was trained on, whether any of these pictures was
among it, and who may be harmed by a wrong answer, the bundle does not tell: whoever publishes this card should."""


def _image(figures: set[str], name: str, words: str) -> str:
    return f"\n\n![{_text(words)}]({name}.png)" if name in figures else ""


def _more(count: int) -> str:
    return f"\n\n{count - _SHOWN:,} more classes are in report.json." if count > _SHOWN else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)])


def _cell(value: object) -> str:
    """Text in a table, where code may stand between backticks."""
    return re.sub(r"([\\*_{}\[\]<>|#~])", r"\\\1", " ".join(str(value).split()))


def _text(value: object) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _cell(value).replace("`", "\\`")
