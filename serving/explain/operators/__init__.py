"""What can be said of each operator's layers: one module here for each operator, found by looking."""

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from gaussport.serving.explain.layer import Array, Layer


class View(Protocol):
    """One layer as it looked at one picture. Cells are (row, column) of its token grid."""

    name: str
    operator: str
    grid: tuple[int, int]
    heads: int

    def row(self, head: int, cell: tuple[int, int]) -> Array:
        """[H, W]: the exact weight of every cell's value in what the query cell gets."""

    def affinity(self, head: int, row: int) -> Array:
        """[W, H, W]: the rows of all query cells of one row of the grid."""

    def sums(self, head: int) -> Array:
        """[H, W]: what each query cell's row sums to by the operator's definition."""

    def layer_numbers(self) -> dict[str, Any]:
        """What holds for the layer as a whole, ready for JSON."""

    def head_numbers(self, head: int) -> dict[str, Any]:
        """What holds for one head, ready for JSON."""

    def cell_numbers(self, head: int, cell: tuple[int, int]) -> dict[str, Any]:
        """What holds for one query cell of one head, ready for JSON, without its row."""

    def token_numbers(self, head: int) -> dict[str, Any]:
        """One head's tensors for all tokens, ready for JSON: enough to compute every row elsewhere."""


@cache
def views() -> MappingProxyType[str, Callable[[Layer, int], View]]:
    """By an operator's name, what makes its view from a layer and a picture's index."""
    modules = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    found = (importlib.import_module(f"{__name__}.{module}") for module in modules)
    return MappingProxyType({module.OPERATOR: module.VIEW for module in found})
