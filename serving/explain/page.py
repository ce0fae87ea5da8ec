"""The explanation of some pictures as one HTML page that needs nothing else: numbers, figures and styles are in it."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

_STYLE = Path(__file__).with_name("page.css")
_KINDS = {"png": "image/png", "svg": "image/svg+xml"}


def page(title: str, pictures: Sequence[Mapping[str, Any]], folder: Mapping[str, Any] | None, format: str) -> str:
    """`pictures` are the JSON of each with its `figures`, content by caption; `folder` is what holds over all of them."""
    parts = [f"<h1>{escape(title)}</h1>", *(_picture(picture, format) for picture in pictures)]
    if folder is not None:
        parts.append(_folder(folder))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE.read_text()}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _picture(picture: Mapping[str, Any], format: str) -> str:
    name = f"<h2>{escape(picture['image'])}</h2>"
    if "error" in picture:
        return f'{name}<p class="bad">{escape(picture["error"]["message"])}</p>'
    said = ", ".join(f"{escape(p['label'])} {p['probability']:.3f}" for p in picture["predictions"])
    warned = "".join(f"<p>{escape(warning)}</p>" for warning in picture["warnings"])
    figures = "".join(_figure(caption, content, format) for caption, content in picture.get("figures", {}).items())
    return f"{name}<p>{said}</p>{warned}{figures}{''.join(_layer(layer) for layer in picture['layers'])}"


def _figure(caption: str, content: bytes, format: str) -> str:
    data = base64.b64encode(content).decode()
    words = escape(caption)
    image = f'<img src="data:{_KINDS[format]};base64,{data}" alt="{words}">'
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>"


def _layer(layer: Mapping[str, Any]) -> str:
    """A table of what is one number for each head."""
    heads = layer["heads"]
    columns = [key for key, value in heads[0].items() if _plain(value) is not None]
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_plain(head[key]) or '')}</td>" for key in columns) + "</tr>" for head in heads
    )
    titles = "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in columns)
    return f"<h3>{escape(layer['name'])}</h3><table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"


def _plain(value: Any) -> str | None:
    """A number or a few words as text; None for what a table cannot hold."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list) and len(value) <= 4 and all(isinstance(part, int | float | str) for part in value):
        return ", ".join(_plain(part) or "" for part in value)
    return None


def _folder(folder: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(head['layer'])}</td><td>{head['head']}</td>"
        f"<td>{'' if head['label_overlap_nmi'] is None else format(head['label_overlap_nmi'], '.3f')}</td>"
        f"<td>{sum(share < 0.001 for share in head['usage'])} of {len(head['usage'])}</td></tr>"
        for head in folder["heads"]
    )
    titles = "<th>layer</th><th>head</th><th>overlap with label (NMI)</th><th>components below 0.1 %</th>"
    figures = "".join(_figure(caption, content, "png") for caption, content in folder.get("figures", {}).items())
    table = f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<h2>Over {folder['pictures']} pictures</h2>{table}{figures}"
