"""Exponents of the filters by one product, in ONNX text that the bodies of `SeparableGaussianFilter` share.

With j* the cell nearest to an atom's centre and s = j* − cell, exponents are −(A·s² + B·s): A = 1/2σ² and |B| = A less
what the cell next to j*, on the centre's side, loses. In powers of the cell's place, counted from the axis' middle, that is
three columns of numbers per query and atom times three rows of numbers per cell: a product instead of four passes over all
filters. It would cancel; so A and B are split into pieces of few enough bits that a piece's products with places squared
and their sum are exact in float32. What is left of the last piece is too small to matter. A is bounded by `STEEPEST` while
the loss next to j* is not rounded by it, so widths near zero still weigh the two cells next to a centre as they should.
This needs products in true float32: TF32 would not do.
"""

import math

STEEPEST = 20.0
"""Bound of A: exp(−20) is 2e-9 of the nearest cell's weight."""

FARTHEST = 40.0
"""Bound of B, which is large only where the centre lies far outside the grid: the nearest cell takes all but exp(−40)."""

CONSTANTS = f"""
  none = Constant <value = float {{0.0}}> ()
  unit = Constant <value = float {{1.0}}> ()
  minus_unit = Constant <value = float {{-1.0}}> ()
  huge = Constant <value = float {{1e30}}> ()
  steepest = Constant <value = float {{{STEEPEST}}}> ()
  farthest = Constant <value = float {{{FARTHEST}}}> ()
"""

# From {a}_mu, {a}_factor = 1/2σ² and the places of queries; {a}_low and {a}_high are those of the first and last cell.
_LINES = """
  {a}_whole = Round ({a}_mu)
  {a}_centre = Sub ({a}_query, {a}_whole)
{bound}
  {a}_from = Sub ({a}_query, {a}_near)
  {a}_excess = Sub ({a}_from, {a}_mu)
  {a}_twice = Add ({a}_excess, {a}_excess)
  {a}_distance = Abs ({a}_twice)
  {a}_gap = Sub ({a}_distance, unit)
  {a}_gain = Mul ({a}_gap, {a}_factor)
  {a}_A0 = Min ({a}_factor, steepest)
  {a}_slope_all = Add ({a}_A0, {a}_gain)
  {a}_slope = Clip ({a}_slope_all, none, farthest)
  {a}_large = Mul ({a}_twice, huge)
  {a}_sign = Clip ({a}_large, minus_unit, unit)
  {a}_B0 = Mul ({a}_slope, {a}_sign)
"""
_BOUND = """
  {a}_near = Clip ({a}_centre, {a}_low, {a}_high)
"""
_BOUND_EACH = """
  {a}_inside = Max ({a}_centre, {a}_low)
  {a}_near = Min ({a}_inside, {a}_high)
"""
# The leading bits of A and B, as `coarse` tells, and what they leave.
_SPLIT = """
  {a}_A{n}_lifted = Add ({a}_A{before}, {a}_coarse{n})
  {a}_A{n}_top = Sub ({a}_A{n}_lifted, {a}_coarse{n})
  {a}_B{n}_lifted = Add ({a}_B{before}, {a}_coarse{n})
  {a}_B{n}_top = Sub ({a}_B{n}_lifted, {a}_coarse{n})
  {a}_A{n} = Sub ({a}_A{before}, {a}_A{n}_top)
  {a}_B{n} = Sub ({a}_B{before}, {a}_B{n}_top)
"""
# −(A·s² + B·s) = −(A·j* + B)·j* + (2·A·j* + B)·cell − A·cell²
_COLUMNS = """
  {A}_line = Mul ({A}, {a}_near)
  {A}_sum = Add ({A}_line, {B})
  {A}_constant = Mul ({A}_sum, {a}_near)
  {A}_linear = Add ({A}_line, {A}_sum)
"""


def lines(a: str, pieces: int, each: bool = False) -> tuple[str, list[str]]:
    """Text that makes the columns of numbers from `{a}_mu`, `{a}_factor` and so on, and the columns' names.

    `each`: `{a}_low` and `{a}_high` are not scalars.
    """
    text, columns = _LINES.format(a=a, bound=(_BOUND_EACH if each else _BOUND).format(a=a)), []
    for n in range(1, pieces + 1):
        A, B = f"{a}_A{n}_top", f"{a}_B{n}_top"
        if n < pieces:
            text += _SPLIT.format(a=a, n=n, before=n - 1)
        else:
            A, B = f"{a}_A{n - 1}", f"{a}_B{n - 1}"
        text += _COLUMNS.format(a=a, A=A, B=B)
        columns += [f"{A}_constant", f"{A}_linear", A]
    return text, columns


def pieces(cells: int) -> int:
    """Pieces of A and B that are enough for that many cells along an axis; three are for 256."""
    return 2 if cells <= 64 else 3


def coarse(cells: int) -> list[float]:
    """For each piece but the last, what to add and take away again to leave whole multiples of a unit.

    That unit is 2⁻²³ of the largest power of two in `coarse`, and sums that must be exact, below (20 + 40 / cells)·cells²,
    are no more than 2²⁴ of it.
    """
    squared = 4.0 ** max(2, math.ceil(math.log2(cells)))
    return [24 * squared * (squared * 2.0**-24) ** n for n in range(pieces(cells) - 1)]
