"""How far a backend may be from the definition, and why. Errors are relative to the largest value: outputs are mixtures of
values with weights that sum to at most one."""

FLOAT64 = 1e-11
"""The square is expanded, so a score is off by rounding times (spread of tokens and means)² / variance: about 1e-16 times
1e4 for the widest spreads and narrowest variances that the tests draw."""

FLOAT32 = 1e-5
"""Scores of a few hundred, the sums of 2·dr products, round at 1e-5; variances down to 0.1, dr up to 17."""

FLOAT32_AS_MADE = 2e-6
"""Mixtures as the modules make them (variance 0.69, dr = 16): scores of tens."""


def float32_of(spread: float) -> float:
    """What float32 costs any mixture: 1e-6, and half a unit in the last place of its `spread`.

    The spread is the largest Σ_m (|x_m − c_m| + |mean_km − c_m|)² / (2·variance_km) over tokens and components, c being the
    mean of the head's means: the terms of the expanded square, which cancel, are no larger. Up to 16 it is within 2e-6.
    A product of 2·dr + 1 terms could lose more in the worst case; random mixtures lose a third of this at most.
    """
    return 1e-6 + 2.0**-24 * spread


FLOAT16 = 5e-3
"""Operands rounded at 5e-4 before the scores are made; scores, softmax and memory are float32."""
