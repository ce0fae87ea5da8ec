"""SSOG: atoms as ellipses over the field that they make together; how far and in which direction a layer steers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from gaussport.serving.explain.drawing.canvas import ACCENT, HEAT, SECOND, mark_cell, show_picture
from gaussport.serving.explain.head_shape import head_shape
from gaussport.serving.explain.operators.separable_gaussian_filter import OPERATOR, SECTORS, FieldView
from gaussport.serving.explain.seen import Picture

__all__ = ["OPERATOR", "draw_head", "draw_layer"]


def draw_head(ax: Axes, picture: Picture, view: FieldView, head: int, cell: tuple[int, int]) -> None:
    """The exact implied row as a heat map; each atom's ellipse at 1σ and 2σ, as opaque as its λ; unsteered ones dashed."""
    show_picture(ax, picture, view.grid)
    row = view.row(head, cell)
    H, W = view.grid
    alpha = 0.85 * row / row.max()
    ax.imshow(row, cmap=HEAT, alpha=alpha, extent=(-0.5, W - 0.5, H - 0.5, -0.5), interpolation="nearest")
    if view.fixed is not None and view.steered:
        offset, width, weight = (part[head] for part in view.fixed)
        _ellipses(ax, cell, offset, width, weight, color=SECOND, style=(0, (2, 2)))
    _ellipses(
        ax, cell, view.offset[cell][head], view.width[cell][head], view.weight[cell][head], color=ACCENT, style="solid"
    )
    mark_cell(ax, cell)
    ax.set_title(f"head {head}: {', '.join(head_shape(view, head)['looks'])}", fontsize=6)


def _ellipses(ax: Axes, cell: tuple[int, int], offset: Any, width: Any, weight: Any, color: str, style: Any) -> None:
    for (down, right), (sigma_row, sigma_column), share in zip(offset, width, weight, strict=True):
        for sigmas in (1, 2):
            ax.add_patch(
                Ellipse(
                    (cell[1] - right, cell[0] - down),
                    2 * sigmas * sigma_column,
                    2 * sigmas * sigma_row,
                    fill=False,
                    color=color,
                    linestyle=style,
                    linewidth=1.1 if sigmas == 1 else 0.6,
                    alpha=float(0.15 + 0.85 * share / weight.max()),
                )
            )


def draw_layer(axes: Sequence[Axes], view: FieldView, heads: Sequence[int]) -> None:
    """How far the tokens steer, in which direction, and how far each head looks."""
    far, where, reach = axes
    steering = view.steering()
    far.set_title(f"{view.name}: how far atoms are steered", fontsize=7)
    where.set_title("in which direction", fontsize=7)
    if steering is None:
        for ax in (far, where):
            ax.text(0.5, 0.5, "a fixed field" if not view.steered else "unknown", ha="center", va="center", fontsize=7)
            ax.set_xticks([])
            ax.set_yticks([])
    else:
        far.stairs(steering["share"], steering["edges_cells"], fill=True, color=ACCENT)
        far.set_xlabel("cells", fontsize=6)
        if view.gates is not None:
            gates = ", ".join(f"{name} {gate:.2g}" for name, gate in zip(("μ", "σ", "λ"), view.gates, strict=True))
            far.text(0.02, 0.97, f"gates {gates}", transform=far.transAxes, va="top", fontsize=6)
        where.barh(range(len(SECTORS)), list(steering["directions"].values()), color=ACCENT)
        where.set_yticks(range(len(SECTORS)), SECTORS)
    shapes = [head_shape(view, head) for head in heads]
    reach.bar(np.arange(len(heads)), [shape["mean_distance_cells"] for shape in shapes], color=SECOND)
    reach.set_xticks(range(len(heads)), [f"{head}\n{' '.join(s['looks'])}" for head, s in zip(heads, shapes, strict=True)])
    reach.set_title("mean distance of a head's look, cells", fontsize=7)
