"""How far a backend may be from the definition, and why. Errors are relative to the largest value: outputs are mixtures of
values with weights that sum to at most one."""

FLOAT64 = 1e-11
"""The square is expanded, so a score is off by rounding times (spread of tokens and means)² / variance: about 1e-16 times
1e4 for the widest spreads and narrowest variances that the tests draw."""

FLOAT32 = 1e-5
"""Scores of a few hundred, the sums of 2·dr products, round at 1e-5; variances down to 0.1, dr up to 17."""

FLOAT32_AS_MADE = 2e-6
"""Mixtures as the modules make them (variance 0.69, dr = 16): scores of tens."""

FLOAT16 = 5e-3
"""Operands rounded at 5e-4 before the scores are made; scores, softmax and memory are float32."""
