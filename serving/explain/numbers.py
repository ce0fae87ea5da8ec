"""One picture's explanation as JSON: what `gaussport explain --json` writes and `/v1/explain` answers."""

from collections.abc import Sequence
from typing import Any

from gaussport.serving.explain.head_shape import head_shape
from gaussport.serving.explain.operators import View
from gaussport.serving.explain.selection import Selection


def available(view: View) -> dict[str, Any]:
    """What can be chosen of a layer."""
    return {"name": view.name, "operator": view.operator, "grid": list(view.grid), "heads": view.heads}


def layer_explanations(views: Sequence[View], selection: Selection, tokens: bool = False) -> list[dict[str, Any]]:
    """The chosen layers and heads. With `tokens` also every token's tensors, from which any row can be computed.

    Raises UsageError for a layer, head or cell that is not there.
    """
    return [_layer(view, selection, tokens) for view in selection.views(views)]


def _layer(view: View, selection: Selection, tokens: bool) -> dict[str, Any]:
    cell = selection.cell_of(view)
    return {
        "name": view.name,
        "operator": view.operator,
        "grid": list(view.grid),
        "cell": list(cell),
        **view.layer_numbers(),
        "heads": [_head(view, head, cell, tokens) for head in selection.heads_of(view)],
    }


def _head(view: View, head: int, cell: tuple[int, int], tokens: bool) -> dict[str, Any]:
    every = {"tokens": view.token_numbers(head)} if tokens else {}
    query = {**view.cell_numbers(head, cell), "row": view.row(head, cell).tolist()}
    return {"head": head, **head_shape(view, head), **view.head_numbers(head), "query": query, **every}
