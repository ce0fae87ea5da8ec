"""Which layers, heads and query cell are looked at: chosen by name or number, refused with what there is."""

from collections.abc import Sequence
from dataclasses import dataclass

from gaussport.errors import UsageError
from gaussport.serving.explain.operators import View


@dataclass(frozen=True)
class Selection:
    """As somebody wrote it. `layers` are names or numbers, from 0; empty means all. `cell` is (row, column); None means the
    middle of the grid."""

    layers: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()
    cell: tuple[int, int] | None = None

    def check_layers(self, names: Sequence[str]) -> None:
        """UsageError unless each layer is there: asked before any picture is read."""
        for wish in self.layers:
            _position(wish, names)

    def views(self, views: Sequence[View]) -> list[View]:
        """The chosen layers' views, in the order that data meets them. Raises UsageError for a layer that is not there."""
        names = [view.name for view in views]
        if not self.layers:
            return list(views)
        chosen = {_position(wish, names) for wish in self.layers}
        return [view for number, view in enumerate(views) if number in chosen]

    def heads_of(self, view: View) -> list[int]:
        """The chosen heads of a layer, ascending. Raises UsageError for one that the layer lacks."""
        for head in self.heads:
            if not 0 <= head < view.heads:
                raise UsageError(f"{view.name} has no head {head}: choose from 0 to {view.heads - 1}")
        return sorted(set(self.heads)) if self.heads else list(range(view.heads))

    def cell_of(self, view: View) -> tuple[int, int]:
        """The query cell. Raises UsageError for one outside the layer's grid."""
        H, W = view.grid
        row, column = self.cell or (H // 2, W // 2)
        if not (0 <= row < H and 0 <= column < W):
            raise UsageError(
                f"{view.name} has no cell {row},{column}: its grid has {H} rows and {W} columns, counted from 0"
            )
        return row, column


def parse_cell(text: str) -> tuple[int, int]:
    """`ROW,COLUMN`. Raises UsageError for anything else."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isascii() and part.strip().isdecimal() and len(part) < 6 for part in parts):
        raise UsageError("the cell is not ROW,COLUMN: give two whole numbers from 0, as 3,3")
    return int(parts[0]), int(parts[1])


def _position(wish: str, names: Sequence[str]) -> int:
    if wish in names:
        return names.index(wish)
    if wish.isascii() and wish.isdecimal() and len(wish) < 6 and int(wish) < len(names):
        return int(wish)
    known = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise UsageError(f"there is no layer {wish[:80]!r}: choose from {known}, or a number from 0 to {len(names) - 1}")
