"""The paper that everything is drawn on: the picture as the model saw it, panels, colours."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gaussport.models.image.preprocess import Preprocessing

ACCENT, SECOND = "#c2410c", "#1d4ed8"
"""Readable on white and on a grey picture, and told apart by people who see red and green alike."""
HEAT = "magma"
_PANEL_IN, _DPI = 1.7, 110


@dataclass(frozen=True)
class Picture:
    """What the model saw, [height, width, 3] from 0 to 1."""

    seen: NDArray[np.float64]

    @classmethod
    def of(cls, pixels: NDArray[np.float32], spec: Preprocessing) -> "Picture":
        """From one normalised picture [C, height, width], its preprocessing undone."""
        mean, std = (np.asarray(stated, dtype=np.float64)[:, None, None] for stated in (spec.mean, spec.std))
        seen = np.clip(pixels * std + mean, 0, 1).transpose(1, 2, 0)
        return cls(np.broadcast_to(seen, (*seen.shape[:2], 3)))

    def faded(self, share: float = 0.6) -> NDArray[np.float64]:
        """Grey and lighter, for things to be drawn over."""
        grey = self.seen.mean(axis=2, keepdims=True)
        return np.broadcast_to(1 - share + share * grey, self.seen.shape)


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
