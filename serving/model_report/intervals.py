"""Intervals and tests for shares, by their closed forms."""

import math

Z95 = 1.959963984540054
"""The normal distribution's 97.5 % point."""


def wilson(right: int, total: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson, 1927): it stays between 0 and 1, and is honest for few pictures."""
    if total == 0:
        return 0.0, 1.0
    share, square = right / total, Z95 * Z95
    centre = (share + square / (2 * total)) / (1 + square / total)
    half = Z95 / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    return (0.0 if right == 0 else max(0.0, centre - half)), (1.0 if right == total else min(1.0, centre + half))


def mcnemar(lost: int, won: int) -> float:
    """The exact two-sided p-value that `lost` and `won` come from one coin (McNemar, 1947): the chance of at least so uneven
    a split when neither model is better."""
    total, fewer = lost + won, min(lost, won)
    if total == 0:
        return 1.0
    log_half = total * math.log(2.0)
    tail = sum(
        math.exp(math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) - log_half)
        for k in range(fewer + 1)
    )
    return min(1.0, 2 * tail)


def paired_difference(lost: int, won: int, total: int) -> tuple[float, float]:
    """The 95 % interval of (won − lost) / total between two models on the same pictures (Agresti and Min, 2005: half a
    picture is added to each cell of the table)."""
    lost_more, won_more, more = lost + 0.5, won + 0.5, total + 2.0
    difference = (won_more - lost_more) / more
    half = Z95 * math.sqrt(won_more + lost_more - (won_more - lost_more) ** 2 / more) / more
    return max(-1.0, difference - half), min(1.0, difference + half)
