"""How far a backend may be from the definition, and why. Errors are absolute, for values of order one: each output is a
convex mixture of values, so errors do not grow with the grid."""

FLOAT64 = 1e-12
"""Only rounding of exponents differs, about 1e-15 each; 1e-12 leaves room for σ = 1e-4, where they reach 1e8."""

FLOAT32 = 2e-6
"""Two products of weights that each sum to one, rounded at 6e-8, and exponents rounded likewise."""

FLOAT16 = 2e-3
"""Operands and result rounded at 5e-4; everything between is float32."""

BFLOAT16 = 1.6e-2
"""Operands and result rounded at 4e-3; everything between is float32."""
