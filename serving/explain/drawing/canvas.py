"""The paper that everything is drawn on: the picture as the model saw it, panels, colours."""

import contextlib
from collections.abc import Iterator, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gaussport.serving.explain.seen import Picture

ACCENT, SECOND = "#c2410c", "#1d4ed8"
"""Readable on white and on a grey picture, and told apart by people who see red and green alike."""
HEAT = "magma"
_PANEL_IN, _DPI = 1.7, 110


def show_picture(ax: Axes, picture: Picture, grid: tuple[int, int]) -> None:
    """The picture in cells: cell (i, w) is the square around x = w, y = i."""
    H, W = grid
    ax.imshow(picture.faded(), extent=(-0.5, W - 0.5, H - 0.5, -0.5), interpolation="nearest")
    ax.set_xlim(-0.5, W - 0.5)
    ax.set_ylim(H - 0.5, -0.5)
    ax.set_xticks([])
    ax.set_yticks([])


def mark_cell(ax: Axes, cell: tuple[int, int]) -> None:
    """A frame around the query cell."""
    ax.add_patch(mpl.patches.Rectangle((cell[1] - 0.5, cell[0] - 0.5), 1, 1, fill=False, color=SECOND, linewidth=1.5))


def grid_of_panels(names: Sequence[str], columns: int) -> tuple[Figure, NDArray[np.object_]]:
    """A figure of len(names) rows of panels, each row named; panels that stay empty are hidden by their drawer's absence."""
    figure = Figure((_PANEL_IN * columns + 0.5, (_PANEL_IN + 0.25) * len(names)), dpi=_DPI, layout="constrained")
    panels: NDArray[np.object_] = figure.subplots(len(names), columns, squeeze=False)
    for name, axes in zip(names, panels, strict=True):
        axes[0].set_ylabel(name, fontsize=7)
        for ax in axes:
            ax.set_xticks([])
            ax.set_yticks([])
    return figure, panels


def rows_of_diagrams(rows: int) -> tuple[Figure, NDArray[np.object_]]:
    """A figure of three diagrams for each row."""
    figure = Figure((9.0, 2.2 * rows), dpi=_DPI, layout="constrained")
    axes: NDArray[np.object_] = figure.subplots(rows, 3, squeeze=False)
    for ax in axes.ravel():
        ax.tick_params(labelsize=6)
    return figure, axes


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Equal figures give equal bytes: an SVG's ids are otherwise drawn at random."""
    with mpl.rc_context({"svg.hashsalt": "gaussport"}):
        yield
