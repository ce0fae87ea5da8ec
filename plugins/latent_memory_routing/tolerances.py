"""How far a backend may be from the definition, and why. Errors are absolute, for values of order one: each output is a
mixture of values with weights that sum to at most one."""

FLOAT64 = 1e-11
"""The square is expanded, so a score is off by rounding times (spread of tokens and means)² / variance: about 1e-16 times
1e4 for the widest spreads and narrowest variances that the tests draw."""

FLOAT32 = 5e-5
"""The same expansion at 6e-8, for spreads² / variance up to a few hundred; trained zoo models stay below 2e-6."""

FLOAT16 = 5e-3
"""Operands rounded at 5e-4 before the scores are made; scores, softmax and memory are float32."""
