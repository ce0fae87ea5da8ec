"""The report as one HTML page that needs nothing else: styles, histograms and pictures are in it."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gaussport.export.verification.report.histogram_svg import histogram_svg
from gaussport.export.verification.report.words import beside, measures, percent, verdict

_SHOWN = 200  # changed answers that the page lists; the JSON has all

_STYLE = Path(__file__).with_name("page.css")


def page(document: Mapping[str, Any], sheet: bytes | None) -> str:
    """The whole page; `sheet` is the PNG of the pictures whose answer changed."""
    kind = "good" if document["ok"] else "bad"
    parts = [
        f'<h1 class="{kind}">{_text(verdict(document))}</h1>',
        f'<p class="dim">{_text(_origin(document))}</p>',
        _table(["check", "result", ""], [_finding(finding) for finding in document["findings"]]),
        *(_proof(proof) for proof in document.get("proofs", {}).values()),
        *(
            f"<p>Not compared: <b>{_text(absent['name'])}</b>, {_text(absent['reason'])}.</p>"
            for absent in document.get("not compared", [])
        ),
    ]
    if document.get("data"):
        parts.append(_data(document["data"], sheet))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(verdict(document))}</title><style>{_STYLE.read_text()}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _origin(document: Mapping[str, Any]) -> str:
    tools = ", ".join(f"{name} {version}" for name, version in document["tools"].items())
    against = f", against the checkpoint {document['checkpoint']}" if document.get("checkpoint") else ""
    return f"{document['bundle']}{against}, on {document['verified']} with {tools}"


def _finding(finding: Mapping[str, Any]) -> list[str]:
    kind = {"ok": "good", "FAILED": "bad"}.get(finding["result"], "dim")
    return [
        f"<td>{_text(finding['check'])}</td>",
        f'<td class="{kind}">{_text(finding["result"])}</td>',
        f'<td class="text">{_text(finding["text"])}</td>',
    ]


def _proof(proof: Mapping[str, Any]) -> str:
    columns = measures()
    rows = [
        [
            f"<td>{_text(row['subject'])}</td>",
            *(
                f'<td class="number">{_text(text)}</td>'
                for text in (row["batch"], *(write(row) for write in columns.values()))
            ),
        ]
        for row in proof["summary"]
    ]
    tolerance = proof["tolerance"]
    share = tolerance["absolute"] / tolerance["scale"] if tolerance["scale"] else 0.0
    drawings = [
        f"<h3>{_text(name)}</h3>"
        + (
            histogram_svg(name, histogram, proof["histogram edges"], share)
            if any(histogram["counts"])
            else f"<p>{histogram['zeros']:,} logits equal to the bit, {histogram['lost']:,} not finite.</p>"
        )
        for name, histogram in proof["histograms"].items()
    ]
    return (
        f"<h2>Beside {_text(beside(proof))}</h2><p>Tolerance: {_text(tolerance['reason'])}.</p>"
        + _table(["model", "batch", *columns], rows)
        + "".join(drawings)
    )


def _data(data: Mapping[str, Any], sheet: bytes | None) -> str:
    things = data["things"]
    thing = things.removesuffix("s")
    said = [f"{percent(data['accuracy'])} of {data[things]:,} {things} are right."]
    if data["reference"] is not None:
        same = f"{percent(data['agreement'])} of the answers are the same, {len(data['changed']):,} changed"
        said.append(f"{data['reference']}: {percent(data['reference_accuracy'])}. {same}.")
    if data["unreadable"]:
        said.append(f"{len(data['unreadable']):,} could not be read: {', '.join(data['unreadable'][:_SHOWN])}.")
    scores = [
        [
            f"<td>{_text(score['label'])}</td>",
            f'<td><meter min="0" max="{score[things]}" value="{score["right"]}"></meter></td>',
            *(f'<td class="number">{_text(_dash(score[key]))}</td>' for key in ("right", things, "reference_right")),
        ]
        for score in data["classes"]
    ]
    parts = [
        f"<h2>On the labelled {things} of {_text(data['source'])}</h2><p>{_text(' '.join(said))}</p>",
        _table(["class", "", "right", things, "reference right"], scores),
    ]
    if data["confusion"]:
        rows = [_cells(c["reference"], c["found"], c[things]) for c in data["confusion"]]
        parts.append("<h3>Answers that changed</h3>" + _table(["reference", "now", things], rows))
    if sheet is not None:
        encoded = base64.b64encode(sheet).decode()
        parts.append(f'<p><img alt="the pictures whose answer changed" src="data:image/png;base64,{encoded}"></p>')
    if data["changed"]:
        rows = [
            _cells(c[thing], c["label"], c["reference"], c["found"], "a tie" if c["tie"] else "")
            for c in data["changed"][:_SHOWN]
        ]
        parts.append(_table([thing, "label", "reference", "now", ""], rows))
    return "".join(parts)


def _cells(*values: object) -> list[str]:
    return [f'<td class="text">{_text(_dash(value))}</td>' for value in values]


def _table(head: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells}</tr>{body}</table></div>'


def _dash(value: object) -> object:
    return "–" if value is None else value


def _text(value: object) -> str:
    return escape(str(value), quote=True)
