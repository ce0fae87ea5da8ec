"""The report as Markdown, for a pull request or a log."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gaussport.export.verification.report.words import beside, measures, percent, verdict

_SHOWN = 50  # changed answers that the text lists; the JSON has all


def markdown(document: Mapping[str, Any], sheet: str | None) -> str:
    """The whole report; `sheet` is the file name of the contact sheet beside it."""
    lines = [f"# {_text(verdict(document))}", "", "| check | result | |", "|---|---|---|"]
    lines += [f"| {f['check']} | {f['result']} | {_text(f['text'])} |" for f in document["findings"]]
    for proof in document.get("proofs", {}).values():
        lines += [
            "",
            f"## Beside {_text(beside(proof))}",
            "",
            f"Tolerance: {_text(proof['tolerance']['reason'])}.",
            "",
        ]
        lines += _table(["model", "batch", *measures()], [_row(row) for row in proof["summary"]])
    for absent in document.get("not compared", []):
        lines += ["", f"Not compared: {_text(absent['name'])}, {_text(absent['reason'])}."]
    if document.get("data"):
        lines += ["", *_data(document["data"], sheet)]
    return "\n".join(lines) + "\n"


def _row(row: Mapping[str, Any]) -> list[str]:
    return [_text(row["subject"]), str(row["batch"]), *(write(row) for write in measures().values())]


def _data(data: Mapping[str, Any], sheet: str | None) -> list[str]:
    things = data["things"]
    thing = things.removesuffix("s")
    lines = [f"## On the labelled {things} of {_text(data['source'])}", ""]
    lines += [f"{percent(data['accuracy'])} of {data[things]} {things} are right."]
    if data["unreadable"]:
        lines += [f"{len(data['unreadable'])} could not be read: {_text(', '.join(data['unreadable'][:_SHOWN]))}."]
    if data["reference"] is not None:
        same = f"{percent(data['agreement'])} of the answers are the same, {len(data['changed'])} changed"
        lines += [f"{_text(data['reference'])}: {percent(data['reference_accuracy'])}; {same}."]
    head = ["class", things, "right", "reference right"]
    scores = [[_text(s["label"]), s[things], s["right"], _dash(s["reference_right"])] for s in data["classes"]]
    lines += ["", *_table(head, scores)]
    if data["changed"]:
        head = [thing, "label", "reference", "now", ""]
        rows = [
            [*(_text(_dash(c[key])) for key in (thing, "label", "reference", "found")), "a tie" if c["tie"] else ""]
            for c in data["changed"][:_SHOWN]
        ]
        lines += ["", *_table(head, rows)]
    if sheet:
        lines += ["", f"![the pictures whose answer changed]({sheet})"]
    return lines


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows),
    ]


def _dash(value: object) -> str:
    return "–" if value is None else str(value)


def _text(value: object) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(str(value).split()))
