"""The lengths by which rows are batched: each holds those that are longer than the one below it, so that of a batch less
than a third is padding, however its rows are mixed."""

from bisect import bisect_left

SHORTEST = 64
"""Rows up to this many tokens are of one length: the shortest cost so little that padding them costs nothing either."""


def lengths_up_to(most: int) -> tuple[int, ...]:
    """64, 96, 128, 192, 256 … up to `most`, which is the last."""
    found, step = [], SHORTEST
    while step < most:
        found += [step, step + step // 2]
        step *= 2
    return (*(length for length in found if length < most), most)


def fitting(length: int, lengths: tuple[int, ...]) -> int:
    """The first of the lengths that holds so many tokens."""
    return lengths[bisect_left(lengths, length)]
