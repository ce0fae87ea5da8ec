"""One text explained as `/v1/explain` answers: the tokens of each component, and with `tokens` the strongest component of
every token at the text's beginning, to paint it."""

from pathlib import Path
from typing import Any

import numpy as np

from gaussport.errors import UsageError
from gaussport.serving.errors import RequestError
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.explain.operators.latent_memory_routing import RoutingView
from gaussport.serving.explain.query import MOST_HEADS, ExplainQuery
from gaussport.serving.explain.selection import Selection
from gaussport.serving.explain.text.document import explained_text
from gaussport.serving.explain.text.page import MOST_DRAWN
from gaussport.serving.explain.text.session import TextSession

MOST_TOKENS = 16_384
"""The longest text that is explained over HTTP: one thread explains for everybody."""
_NAME = Path("text")


def explained(explainer: Explainer, document: bytes | str, query: ExplainQuery, folder: Path | None) -> dict[str, Any]:
    """What the route says of one text. `folder` is where the tokenizer lies.

    Raises:
        TextError: the text cannot be used.
        RequestError: too much is asked for, or what is not there.
    """
    text = explained_text(explainer, document, folder, _NAME)
    views = [view for view in text.views if isinstance(view, RoutingView)]
    try:
        chosen = [view for view in query.selection.views(views) if isinstance(view, RoutingView)]
        heads = sum(len(query.selection.heads_of(view)) for view in chosen)
    except UsageError as error:
        raise RequestError(str(error), "bad_parameter") from error
    if heads > MOST_HEADS["json"]:
        raise RequestError(
            f"{heads} heads are asked for and {MOST_HEADS['json']} can be had at once: choose with layers and heads",
            "bad_parameter",
        )
    session = TextSession(explainer, [_NAME], query.selection, folder)
    layers = session.explanation(text)
    if query.tokens:
        _paint(layers, chosen, query.selection)
    return {
        "predictions": list(text.predictions),
        "tokens": len(text.tokens),
        "windows": text.windows,
        **({"pieces": list(text.pieces[:MOST_DRAWN])} if query.tokens else {}),
        "available": [{"name": view.name, "operator": view.operator, "heads": view.heads} for view in views],
        "layers": layers,
    }


def _paint(layers: list[dict[str, Any]], views: list[RoutingView], selection: Selection) -> None:
    """Add to each head which component takes most of each token's key, and how much of it."""
    for layer, view in zip(layers, views, strict=True):
        for head, number in zip(layer["heads"], selection.heads_of(view), strict=True):
            shares = view.key[:MOST_DRAWN, number]
            head["strongest"] = shares.argmax(axis=1).tolist()
            head["shares"] = np.round(shares.max(axis=1).astype(float), 4).tolist()
