"""The patches that each component of a head likes best, one row a component, cut from the pictures as the model saw them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from gaussport.serving.explain.seen import Picture

_GAP = 1  # white pixels between patches
_COLUMNS = 2  # components side by side


def patches_figure(
    head: Mapping[str, Any], grid: tuple[int, int], picture: Callable[[str], Picture], components: Sequence[int]
) -> Figure:
    """`head` is a census as JSON; `picture(name)` gives what the model saw. Components in the order given."""
    tiles = [
        [_cut(picture(patch["image"]), grid, patch["cell"]) for patch in head["top_patches"][component]]
        for component in components
    ]
    rows = -(-len(components) // _COLUMNS)
    figure = Figure((8.0, 0.62 * rows + 0.2), dpi=110, layout="constrained")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False)
    for ax in axes.ravel():
        ax.axis("off")
    for ax, component, found in zip(axes.ravel(), components, tiles, strict=False):
        ax.imshow(np.concatenate(found, axis=1), interpolation="nearest")
        ax.set_title(f"component {component}: {head['usage'][component]:.1%} of the keys", fontsize=6, loc="left")
    return figure


def _cut(picture: Picture, grid: tuple[int, int], cell: Sequence[int]) -> Any:
    """One cell's patch, with a white edge."""
    height, width = picture.seen.shape[0] // grid[0], picture.seen.shape[1] // grid[1]
    top, left = cell[0] * height, cell[1] * width
    patch = picture.seen[top : top + height, left : left + width]
    return np.pad(patch, ((0, 0), (0, _GAP), (0, 0)), constant_values=1.0)
