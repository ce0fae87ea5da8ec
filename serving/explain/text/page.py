"""The explanation of some texts as one HTML page that needs nothing else: the text itself, painted, and tables."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from gaussport.serving.explain.operators.latent_memory_routing import RoutingView
from gaussport.serving.explain.selection import Selection
from gaussport.serving.explain.text.document import ExplainedText

MOST_DRAWN = 2000
"""Tokens of a text that are painted, from its beginning."""
_GOLDEN = 0.618033988749895  # successive multiples of it lie far apart on the wheel of hues
_SHOWN_COMPONENTS = 8
_LEVELS = 4  # of how much of a token its component takes
_STYLE = Path(__file__).parents[1].joinpath("page.css")
_OWN_STYLE = """
.text { font: 13px/1.7 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0 1rem; }
.text span { background: hsl(var(--h) 70% 50% / var(--a)); border-radius: 2px; }
.strip { display: inline-grid; grid-template-columns: repeat(20, 8px); vertical-align: middle; }
.strip i { height: 12px; background: currentColor; }
td code { background: #8883; padding: 0 .25em; white-space: pre; }
"""


def drawn(text: ExplainedText, views: Sequence[RoutingView], selection: Selection) -> dict[str, str]:
    """The beginning of the text for each layer and head, each run of tokens in the colour of the component that takes most
    of their keys, as opaque as its share."""
    return {
        f"{view.name}, head {head}": "".join(_spans(text, view, head)) for view in views for head in selection.heads_of(view)
    }


def _spans(text: ExplainedText, view: RoutingView, head: int) -> Iterator[str]:
    shares = view.key[:MOST_DRAWN, head]
    strongest, most = shares.argmax(axis=1), shares.max(axis=1)
    levels = np.ceil(most * _LEVELS).astype(int)
    marks = list(zip(strongest.tolist(), levels.tolist(), text.pieces, strict=False))
    for (component, level), run in groupby(marks, key=lambda mark: mark[:2]):
        content = escape("".join(piece for _, _, piece in run))
        if content:
            style = f"--h:{round(360 * (component * _GOLDEN % 1))};--a:{0.6 * level / _LEVELS:.2f}"
            yield f'<span style="{style}" title="component {component}">{content}</span>'


def page(title: str, documents: Sequence[Mapping[str, Any]], over_all: Mapping[str, Any] | None) -> str:
    """`documents` are the JSON of each text with what is `drawn` of it; `over_all` is what holds over all of them."""
    parts = [f"<h1>{escape(title)}</h1>", *map(_document, documents)]
    if over_all is not None:
        parts.append(f"<h2>Over {over_all['texts']} texts</h2>")
        parts += [_components(f"{head['layer']}, head {head['head']}", head) for head in over_all["heads"]]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE.read_text()}{_OWN_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _document(document: Mapping[str, Any]) -> str:
    name = f"<h2>{escape(document['text'])}</h2>"
    if "error" in document:
        return f'{name}<p class="bad">{escape(document["error"]["message"])}</p>'
    said = ", ".join(f"{escape(p['label'])} {p['probability']:.3f}" for p in document["predictions"])
    size = f"{document['tokens']:,} tokens in {document['windows']} window{'s' * (document['windows'] != 1)}"
    parts = [name, f"<p>{said}</p><p>{size}; the first {min(document['tokens'], MOST_DRAWN):,} are painted</p>"]
    drawings = document.get("drawn", {})
    for layer in document["layers"]:
        for head in layer["heads"]:
            title = f"{layer['name']}, head {head['head']}"
            facts = f"effective rank {head['effective_rank']:.1f} of {layer['components']}, {len(head['dead'])} dead"
            parts.append(f"<h3>{escape(title)}</h3><p>{facts}</p>")
            if title in drawings:
                parts.append(f'<div class="text">{drawings[title]}</div>')
            parts.append(_components("", head["components"]))
    return "\n".join(parts)


def _components(title: str, found: Mapping[str, Any]) -> str:
    """A table of the components that are used most."""
    usage = found["usage"]
    busiest = sorted(range(len(usage)), key=lambda component: -usage[component])[:_SHOWN_COMPONENTS]
    heads = "".join(f"<th>{word}</th>" for word in ("component", "usage", "tokens", "passages", "reads", "writes"))
    rows = "".join(_row(component, found) for component in busiest)
    caption = f"<h3>{escape(title)}</h3>" if title else ""
    return f"{caption}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _row(component: int, found: Mapping[str, Any]) -> str:
    tokens = " ".join(f"<code>{_visible(token['text'], token['token'])}</code>" for token in found["top_tokens"][component])
    passages = "<br>".join(f"<code>{_visible(each['passage'])}</code>" for each in found["passages"][component][:3])
    strips = "".join(f"<td>{_strip(found[side][component])}</td>" for side in ("reads", "writes"))
    return (
        f"<tr><td>{component}</td><td>{found['usage'][component]:.1%}</td><td>{tokens}</td><td>{passages}</td>{strips}</tr>"
    )


def _visible(text: str, token: int | None = None) -> str:
    """Text on one line; control characters by their names' glyphs, a token without text of its own by its number."""
    shown = "".join(chr(0x2400 + ord(c)) if c < " " else c for c in text)
    return escape(shown or (f"#{token}" if token is not None else ""))


def _strip(shares: Sequence[float]) -> str:
    """Where in a document, from its beginning to its end: the darker the more."""
    most = max(shares) or 1.0
    return f'<span class="strip">{"".join(f"<i style=opacity:{share / most:.2f}></i>" for share in shares)}</span>'
