"""Axes as products of indices. An exporter may write one axis of 24 where another writes two of 4 and 6; here both are the
same two indices, because reshapes split and join indices instead of making new axes.

A size is a pair: what the axis measures at batch 2 and at batch 3. So (4, 6) is twice the batch and (4, 4) is four, and
sizes multiply and divide without symbols.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

Size = tuple[int, int]
BATCHES: Size = (2, 3)
ONE: Size = (1, 1)

_numbers = count()


@dataclass(frozen=True, eq=False)
class Index:
    """One index variable. It may be found to be several: see `Splits`."""

    size: Size
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def fixed(self) -> bool:
        """Whether it has the same size in every batch."""
        return self.size[0] == self.size[1]

    def __repr__(self) -> str:
        return f"i{self.number}({self.size[0] if self.fixed else 'batch'})"


Axis = tuple[Index, ...]
"""Row-major: the last index runs fastest. Empty for an axis of one."""


class UnreadableError(Exception):
    """A part of the graph that index notation cannot express; the message names the node."""


class Splits:
    """Which indices turned out to be made of others."""

    def __init__(self) -> None:
        self._parts: dict[Index, Axis] = {}

    def resolve(self, axis: Axis) -> Axis:
        """The axis in indices that nobody has split."""
        if not any(index in self._parts for index in axis):
            return axis
        return tuple(part for index in axis for part in self.resolve(self._parts.get(index, (index,)))) if axis else ()

    def regroup(self, axes: Sequence[Axis], sizes: Sequence[Size]) -> tuple[Axis, ...]:
        """The same elements in row-major order as axes of these sizes; indices are split where a new border cuts them.

        Raises:
            UnreadableError: a border cuts an index where its size does not divide.
        """
        rest = [index for axis in axes for index in self.resolve(axis)]
        grouped = []
        for size in sizes:
            axis: list[Index] = []
            wanted = size
            while wanted != ONE:
                if not rest:
                    raise UnreadableError("a reshape changes the number of elements")
                if _divide(wanted, rest[0].size) is None:
                    rest[:1] = self._split(rest[0], wanted)
                axis.append(rest.pop(0))
                wanted = _divide(wanted, axis[-1].size) or ONE
            grouped.append(tuple(axis))
        return tuple(grouped)

    def split(self, index: Index, outer: int) -> Axis:
        """Split an index of fixed size into one of `outer` and the rest."""
        return self._split(index, (outer, outer))

    def _split(self, index: Index, outer: Size) -> Axis:
        inner = _divide(index.size, outer)
        if inner is None:
            raise UnreadableError(f"a reshape cuts an axis of {index.size[0]} at {outer[0]}, which does not divide it")
        parts = (Index(outer), Index(inner))
        self._parts[index] = parts
        return parts


def size_of(axis: Axis) -> Size:
    return (math.prod(index.size[0] for index in axis), math.prod(index.size[1] for index in axis))


def fresh(size: Size) -> Axis:
    """An axis of that size with an index of its own, or none for an axis of one."""
    return () if size == ONE else (Index(size),)


def _divide(size: Size, by: Size) -> Size | None:
    """size / by where it is whole in both batches."""
    if size[0] % by[0] or size[1] % by[1]:
        return None
    return (size[0] // by[0], size[1] // by[1])
