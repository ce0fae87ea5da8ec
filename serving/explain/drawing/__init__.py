"""Figures of what the attention looked at, with matplotlib, which is imported here and nowhere else (extra `explain`).

One module for each operator draws that operator's layers: found by looking, as `operators` are.
"""

import importlib
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gaussport.errors import ServingError
from gaussport.serving.explain.operators import View
from gaussport.serving.explain.selection import Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gaussport.serving.explain.seen import Picture as Picture

FORMATS = ("png", "svg")
_SHARED = ("canvas", "patches")


def require_matplotlib(otherwise: str = "") -> None:
    """Raise a ServingError, which ends with `otherwise`, unless figures can be drawn here."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise ServingError(f"figures need matplotlib: install gaussport[explain]{otherwise}") from None


@cache
def _drawers() -> MappingProxyType[str, Any]:
    modules = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py") if path.stem not in _SHARED)
    found = (importlib.import_module(f"{__name__}.{module}") for module in modules)
    return MappingProxyType({module.OPERATOR: module for module in found})


def heads_figure(picture: "Picture", views: Sequence[View], selection: Selection) -> "Figure":
    """One panel for each chosen layer and head: what it looked at from the query cell, over the picture."""
    from gaussport.serving.explain.drawing.canvas import grid_of_panels

    chosen = selection.views(views)
    heads = {view.name: selection.heads_of(view) for view in chosen}
    figure, panels = grid_of_panels([view.name for view in chosen], max(len(found) for found in heads.values()))
    for view, axes in zip(chosen, panels, strict=True):
        for head, ax in zip(heads[view.name], axes, strict=False):
            _drawers()[view.operator].draw_head(ax, picture, view, head, selection.cell_of(view))
    return figure


def layers_figure(views: Sequence[View], selection: Selection) -> "Figure":
    """One row of diagrams for each chosen layer: how it steers, or which components it uses."""
    from gaussport.serving.explain.drawing.canvas import rows_of_diagrams

    chosen = selection.views(views)
    figure, rows = rows_of_diagrams(len(chosen))
    for view, axes in zip(chosen, rows, strict=True):
        _drawers()[view.operator].draw_layer(axes, view, selection.heads_of(view))
    return figure


def rendered(figure: "Figure", format: str) -> bytes:
    """The figure as a file's content: a PNG, or an SVG without dates, equal for equal figures."""
    from gaussport.serving.explain.drawing.canvas import steady

    buffer = io.BytesIO()
    with steady():
        figure.savefig(buffer, format=format, metadata={"Date": None} if format == "svg" else {"Software": None})
    return buffer.getvalue()
