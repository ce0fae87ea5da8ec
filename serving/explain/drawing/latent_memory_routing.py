"""GMA: which component takes which part of the picture; usage, and what it tells."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from gaussport.serving.explain.drawing.canvas import ACCENT, SECOND, mark_cell, show_picture
from gaussport.serving.explain.operators.latent_memory_routing import OPERATOR, RoutingView
from gaussport.serving.explain.seen import Picture

__all__ = ["OPERATOR", "draw_head", "draw_layer"]

_GOLDEN = 0.618033988749895  # successive multiples of it lie far apart on the wheel of hues


def draw_head(ax: Axes, picture: Picture, view: RoutingView, head: int, cell: tuple[int, int]) -> None:
    """Each cell in the colour of the component that takes most of its key, as opaque as its share; each component's number
    where it is strongest. Black squares are the implied row of the query cell, by area."""
    H, W = view.grid
    shares = view.key[:, head]
    best = shares.argmax(axis=1)
    colours = np.array([_colour(component) for component in range(view.components)])
    paint = np.concatenate([colours[best], 0.75 * shares.max(axis=1, keepdims=True)], axis=1).reshape(H, W, 4)
    show_picture(ax, picture, view.grid)
    ax.imshow(paint, extent=(-0.5, W - 0.5, H - 0.5, -0.5), interpolation="nearest")
    row = view.row(head, cell)
    down, right = np.mgrid[:H, :W]
    ax.scatter(right, down, s=60 * row / row.max(), c="black", marker="s", linewidths=0, alpha=0.8)
    for component in np.unique(best):
        token = int(np.where(best == component, shares[:, component], -1).argmax())
        ax.annotate(str(component), (token % W - 0.45, token // W - 0.45), va="top", fontsize=5, color="white")
    mark_cell(ax, cell)
    numbers = view.head_numbers(head)
    ax.set_title(f"head {head}: rank {numbers['effective_rank']:.1f}, {len(numbers['dead'])} dead", fontsize=6)


def _colour(component: int) -> tuple[float, float, float]:
    hue = component * _GOLDEN % 1.0
    red, green, blue = mpl.colors.hsv_to_rgb((hue, 0.65, 0.85 if component % 2 else 0.65))
    return float(red), float(green), float(blue)


def draw_layer(axes: Sequence[Axes], view: RoutingView, heads: Sequence[int]) -> None:
    """Usage of the components, sorted; entropy of queries and keys; effective rank, dead and double components."""
    usage, entropy, rank = axes
    numbers = [view.head_numbers(head) for head in heads]
    places = np.arange(len(heads))
    for head, found in zip(heads, numbers, strict=True):
        usage.semilogy(np.sort(found["usage"]["key"])[::-1], label=f"head {head}", linewidth=1)
    usage.set_ylim(bottom=1e-6)
    usage.legend(fontsize=5)
    usage.set_title(f"{view.name}: share of each component in the keys, sorted", fontsize=7)
    for shift, (side, colour) in zip((-0.2, 0.2), (("query", ACCENT), ("key", SECOND)), strict=True):
        entropy.bar(places + shift, [found["entropy_nats"][side] for found in numbers], 0.4, color=colour, label=side)
    entropy.axhline(np.log(view.components), color="grey", linewidth=0.8, linestyle="dashed")
    entropy.legend(fontsize=5)
    entropy.set_title("entropy of a token's responsibilities, nats (dashed: all alike)", fontsize=6)
    rank.bar(places, [found["effective_rank"] for found in numbers], color=SECOND)
    rank.set_title(f"effective rank of Γ_QΓ_Kᵀ, of {view.components}", fontsize=7)
    entropy.set_xticks(places, [str(head) for head in heads])
    words = [f"{head}\n{len(n['dead'])} dead\n{len(n['duplicates'])} double" for head, n in zip(heads, numbers, strict=True)]
    rank.set_xticks(places, words, fontsize=5)
