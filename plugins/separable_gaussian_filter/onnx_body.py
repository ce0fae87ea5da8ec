"""The body of `SeparableGaussianFilter` in standard operators, as text for `onnx.parser`; see `onnx_op` for its choices.

**Exponents by one product.** With j* the cell nearest to an atom's centre, s = j* − cell and `loss` the exponent at the cell
next to it on the centre's side, exponents are −(A·s² + B·s): A = 1/2σ², B = ±(A − loss). In powers of the cell's place that
is three columns of numbers per query and atom times three rows of numbers per cell: a product that replaces four passes over
all filters. It would cancel; so A and B are split into pieces of few enough bits that a piece's products with places squared
and their sum are exact in float32. What is left of the last piece is too small to matter. A is bounded by
`STEEPEST` while `loss` is not rounded by it, so widths near zero still weigh the two cells next to a centre as they should.
This needs products in true float32: TF32 would not do.

**Tiles.** Filters of a large steered field do not fit in a core's cache; two nested Scans make and use those of one head and
a few rows at a time. They also leave no [B, H, W, P, R, D] array in memory.

Axes: b, P head, C tile of rows, I row in its tile, W column, R atom, K column of numbers; (b, P, C) are (1, 1, 1) in a tile.
"""

import math
from dataclasses import dataclass

from gaussport.plugins.separable_gaussian_filter.torch_op import LEAST_LOG, LEAST_VARIANCE

STEEPEST = 20.0
"""Bound of A, and of the exponent next to the nearest cell: exp(−20) is 2e-9 of the nearest cell's weight."""

TILE = 2**18
"""Filter weights of one direction in a tile, at most: one megabyte, half of a core's cache."""

UNTILED = 2**16
"""Filter weights of one direction and head up to which all heads fit in the cache together."""

SHORT_ROW = 24
"""Cells below which Softmax takes longer than its parts."""

EXACT_IN_TWO = 64
"""Cells along an axis up to which two pieces of A and B are enough; three are for 256."""

BODY = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} (value, offset, width, weight) => (output)
{{
  float_value = Cast <to = 1> (value)
  float_offset = Cast <to = 1> (offset)
  float_width = Cast <to = 1> (width)
  float_weight = Cast <to = 1> (weight)
{sizes}
  tiles = Constant <value = int64[1] {{{tiles}}}> ()
  first_axis = Constant <value = int64[1] {{0}}> ()
  one_1 = Constant <value = int64[1] {{1}}> ()
  third_axis = Constant <value = int64[1] {{2}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  rest = Constant <value = int64[1] {{-1}}> ()
  keep_4 = Constant <value = int64[4] {{0, 0, 0, 0}}> ()
  as_row = Constant <value = int64[6] {{0, 0, 0, 0, 1, -1}}> ()
  as_column = Constant <value = int64[6] {{0, 0, 0, 0, -1, 1}}> ()
  zero = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  two = Constant <value = int64 {{2}}> ()
  none = Constant <value = float {{0.0}}> ()
  half = Constant <value = float {{0.5}}> ()
  unit = Constant <value = float {{1.0}}> ()
  double = Constant <value = float {{2.0}}> ()
  ln_two = Constant <value = float {{0.6931471805599453}}> ()
  ulp = Constant <value = float {{5.9604644775390625e-08}}> ()
  least = Constant <value = float {{{least}}}> ()
  least_log = Constant <value = float {{{least_log}}}> ()
  steepest = Constant <value = float {{{steepest}}}> ()
  least_loss = Constant <value = float {{-80.0}}> ()
  rows = Div (H, tiles)
  square = Mul (float_width, float_width)
  safe = Max (square, least)
  factor = Div (half, safe)
  row_factor_flat, col_factor_flat = Split <axis = -1, num_outputs = 2> (factor)
  row_mu_flat, col_mu_flat = Split <axis = -1, num_outputs = 2> (float_offset)
  weight_flat = Unsqueeze (float_weight, last)
{field}
{row}
{col}
  values_5 = Transpose <perm = [0, 3, 2, 1, 4]> (float_value)
  values{outer} = Unsqueeze (values_5, third_axis)
  turn_shape = Concat <axis = 0> (keep_4, rows, R, D)
  join_shape = Concat <axis = 0> (keep_4, rest, D)
  matrix_shape = Concat <axis = 0> (keep_4, W, rest)
{filter}
  P = Shape <start = 3, end = 4> (weight)
  heads_shape = Concat <axis = 0> (rest, P, H, W, D)
  heads = Reshape (filtered{outer}, heads_shape)
  like = CastLike (heads, value)
  output = Transpose <perm = [0, 2, 3, 1, 4]> (like)
}}
"""

# A field's numbers as [b, P, C, W, I, R] for the row filters and [b, P, C, I, W, R] for the column filters.
WHOLE = """
  row_mu_grid = Transpose <perm = [0, 3, 5, 2, 1, 4]> (row_mu_flat)
  row_factor_grid = Transpose <perm = [0, 3, 5, 2, 1, 4]> (row_factor_flat)
  col_mu_grid = Transpose <perm = [0, 3, 5, 1, 2, 4]> (col_mu_flat)
  col_factor_grid = Transpose <perm = [0, 3, 5, 1, 2, 4]> (col_factor_flat)
  weight_grid = Transpose <perm = [0, 3, 5, 1, 2, 4]> (weight_flat)
"""
TILED = """
  batch = Shape <start = 0, end = 1> (value)
  ones_5 = Constant <value = int64[5] {{1, 1, 1, 1, 1}}> ()
  batch_shape = Concat <axis = 0> (batch, ones_5)
  field_shape = Concat <axis = 0> (first_axis, tiles, rows, W, rest, R)
{lines}
"""
TILED_NUMBER = """
  {x}_each = Expand ({x}_flat, batch_shape)
  {x}_tiles = Reshape ({x}_each, field_shape)
  {x}_grid = Transpose <perm = {perm}> ({x}_tiles)
"""

# One direction: its numbers as [b, P, C, ·, 1, I·R], their columns, and the exponents [b, P, C, ·, I·R, cells].
AXIS = """
  {a}_size = Squeeze ({size})
  {a}_int = Range (zero, {a}_size, one)
  {a}_cells = Cast <to = 1> ({a}_int)
  {a}_cells_shape = Concat <axis = 0> ({tiles}, one_1, rest, one_1)
  {a}_cells_grid = Reshape ({a}_cells, {a}_cells_shape)
  {a}_atoms_shape = Concat <axis = 0> (one_1, one_1, one_1, R)
  {a}_by_atom = Expand ({a}_cells_grid, {a}_atoms_shape)
  {a}_query_shape = Concat <axis = 0> ({tiles}, one_1, one_1, rest)
  {a}_query = Reshape ({a}_by_atom, {a}_query_shape)
  {a}_size_less = Sub ({a}_size, one)
  {a}_end = Cast <to = 1> ({a}_size_less)
  {a}_middle_int = Div ({a}_size, two)
  {a}_middle = Cast <to = 1> ({a}_middle_int)
  {a}_place_flat = Sub ({a}_cells, {a}_middle)
  {a}_place = Unsqueeze ({a}_place_flat, first_axis)
  {a}_minus_place = Neg ({a}_place)
  {a}_minus_square = Mul ({a}_place, {a}_minus_place)
  {a}_nothing = Sub ({a}_place, {a}_place)
  {a}_minus_one = Sub ({a}_nothing, unit)
  {a}_powers = Concat <axis = 0> ({a}_minus_one, {a}_place, {a}_minus_square)
  {a}_basis = Concat <axis = 0> ({basis})
{grain}
{expand}
  {a}_whole = Round ({a}_mu)
  {a}_centre = Sub ({a}_query, {a}_whole)
  {a}_nearest = Clip ({a}_centre, none, {a}_end)
  {a}_from = Sub ({a}_query, {a}_nearest)
  {a}_excess = Sub ({a}_from, {a}_mu)
  {a}_side = Sign ({a}_excess)
  {a}_off = Abs ({a}_excess)
  {a}_twice = Add ({a}_off, {a}_off)
  {a}_gap = Sub (unit, {a}_twice)
  {a}_loss_all = Mul ({a}_gap, {a}_factor)
  {a}_loss = Clip ({a}_loss_all, least_loss, steepest)
  {a}_A0 = Min ({a}_factor, steepest)
  {a}_slope = Sub ({a}_A0, {a}_loss)
  {a}_B0 = Mul ({a}_slope, {a}_side)
  {a}_near = Sub ({a}_nearest, {a}_middle)
{pieces}
  {a}_columns{outer} = Concat <axis = 4> ({columns})
"""
EXPANDED = """
  {x}_cells = Concat <axis = 0> (one_1, {cells}, R)
  {x}_field = Expand ({x}_grid, {x}_cells)
  {result} = Reshape ({x}_field, {layout})
"""
STEERED = """
  {result} = Reshape ({x}_grid, {layout})
"""
GRAIN = """
  {a}_length = Cast <to = 1> ({a}_size)
  {a}_ln = Log ({a}_length)
  {a}_log_two = Div ({a}_ln, ln_two)
  {a}_bits = Ceil ({a}_log_two)
  {a}_twice_bits = Add ({a}_bits, {a}_bits)
  {a}_grain = Pow (double, {a}_twice_bits)
  {a}_finer = Mul ({a}_grain, ulp)
"""
FIXED_GRAIN = """
  {a}_grain = Constant <value = float {{{grain}}}> ()
  {a}_finer = Constant <value = float {{{finer}}}> ()
"""
# The leading bits of A and B, on one grid of 2⁻²⁴·coarse, and what they leave.
COARSE = """
  {a}_coarse1 = Mul ({a}_A0, {a}_grain)
"""
FINER = """
  {a}_coarse{n} = Mul ({a}_coarse{before}, {a}_finer)
"""
SPLIT = """
  {a}_A{n}_lifted = Add ({a}_A{before}, {a}_coarse{n})
  {a}_A{n}_top = Sub ({a}_A{n}_lifted, {a}_coarse{n})
  {a}_B{n}_lifted = Add ({a}_B{before}, {a}_coarse{n})
  {a}_B{n}_top = Sub ({a}_B{n}_lifted, {a}_coarse{n})
  {a}_A{n} = Sub ({a}_A{before}, {a}_A{n}_top)
  {a}_B{n} = Sub ({a}_B{before}, {a}_B{n}_top)
"""
# −(A·s² + B·s) = −(A·j* + B)·j* + (2·A·j* + B)·cell − A·cell²
COLUMNS = """
  {A}_line = Mul ({A}, {a}_near)
  {A}_sum = Add ({A}_line, {B})
  {A}_constant = Mul ({A}_sum, {a}_near)
  {A}_linear = Add ({A}_line, {A}_sum)
"""

FILTER = """
  row_lines = Transpose <perm = [0, 1, 2, 3, 5, 4]> (row_columns)
  row_exponent = MatMul (row_lines, row_basis)
  row_log = Clip (row_exponent, least_log)
{row_filter}
  row_pass = MatMul (row_filter, values)
  row_split = Reshape (row_pass, turn_shape)
  row_turned = Transpose <perm = [0, 1, 2, 4, 5, 3, 6]> (row_split)
  row_passed = Reshape (row_turned, join_shape)
  col_lines = Transpose <perm = [0, 1, 2, 3, 5, 4]> (col_columns)
  col_exponent = MatMul (col_lines, col_basis)
  col_log = Clip (col_exponent, least_log)
  col_gauss = Exp (col_log)
  col_total = ReduceSum <keepdims = 1> (col_gauss, last)
  col_share = Div (weight_column, col_total)
  col_filter = Mul (col_gauss, col_share)
  col_matrix = Reshape (col_filter, matrix_shape)
  filtered = MatMul (col_matrix, row_passed)
"""

# Softmax where rows are long enough for its loops, its parts where they are not.
SOFTMAX = """
  row_filter = Softmax <axis = -1> (row_log)
"""
SHORT_SOFTMAX = """
  row_gauss = Exp (row_log)
  row_total = ReduceSum <keepdims = 1> (row_gauss, last)
  row_share = Reciprocal (row_total)
  row_filter = Mul (row_gauss, row_share)
"""

SCANS = """
  flat_shape = Constant <value = int64[7] {{-1, 1, 1, 1, {W}, {H}, {D}}}> ()
  row_scan_shape = Constant <value = int64[8] {{-1, {C}, 1, 1, 1, {W}, {K}, {IR}}}> ()
  col_scan_shape = Constant <value = int64[8] {{-1, {C}, 1, 1, 1, {I}, {K}, {WR}}}> ()
  weight_scan_shape = Constant <value = int64[8] {{-1, {C}, 1, 1, 1, {I}, {WR}, 1}}> ()
  head_values = Reshape (values_all, flat_shape)
  head_row_columns = Reshape (row_columns_all, row_scan_shape)
  head_col_columns = Reshape (col_columns_all, col_scan_shape)
  head_weights = Reshape (weight_column_all, weight_scan_shape)
  filtered_all = Scan <num_scan_inputs = 4, body = head (
    float[1, 1, 1, {W}, {H}, {D}] values, float[{C}, 1, 1, 1, {W}, {K}, {IR}] tile_row_columns,
    float[{C}, 1, 1, 1, {I}, {K}, {WR}] tile_col_columns, float[{C}, 1, 1, 1, {I}, {WR}, 1] tile_weights
  ) => (float[{C}, 1, 1, 1, {I}, {W}, {D}] head_output) {{
    head_output = Scan <num_scan_inputs = 3, body = tile (
      float[1, 1, 1, {W}, {K}, {IR}] row_columns, float[1, 1, 1, {I}, {K}, {WR}] col_columns,
      float[1, 1, 1, {I}, {WR}, 1] weight_column
    ) => (float[1, 1, 1, {I}, {W}, {D}] filtered) {{
{tile}
    }}> (tile_row_columns, tile_col_columns, tile_weights)
  }}> (head_values, head_row_columns, head_col_columns, head_weights)
"""


@dataclass(frozen=True)
class Grid:
    """Sizes that a model fixes, and whether each token surely has its own field."""

    H: int
    W: int
    D: int
    R: int
    steered: bool

    @property
    def rows(self) -> int:
        """Rows of the grid in one tile, a divisor of H; H where all is one tile."""
        per_row = self.W * self.R * max(self.H, self.W)
        if not self.steered or per_row * self.H <= UNTILED:
            return self.H
        divisors = [n for n in range(1, self.H + 1) if self.H % n == 0]
        return min(divisors, key=lambda n: abs(math.log(n * per_row / TILE)))

    @property
    def tiled(self) -> bool:
        return self.steered and self.W * self.R * max(self.H, self.W) * self.H > UNTILED


def text(domain: str, name: str, opset: int, grid: Grid | None) -> str:
    """The body for a grid whose sizes the model fixes, or for any."""
    tiled = grid is not None and grid.tiled
    outer = "_all" if tiled else ""
    short = grid is not None and grid.H < SHORT_ROW
    tile = FILTER.format(row_filter=SHORT_SOFTMAX if short else SOFTMAX)
    return BODY.format(
        domain=domain,
        name=name,
        opset=opset,
        sizes=_sizes(grid),
        tiles=grid.H // grid.rows if grid is not None else 1,
        least=LEAST_VARIANCE,
        least_log=LEAST_LOG,
        steepest=STEEPEST,
        outer=outer,
        field=_tiled_field() if tiled else WHOLE,
        row=_axis("row", grid, outer),
        col=_axis("col", grid, outer) + _number("weight", f"weight_column{outer}", "W", "as_column", grid),
        filter=_scans(grid, tile) if grid is not None and tiled else tile,
    )


def _sizes(grid: Grid | None) -> str:
    if grid is not None:
        return "\n".join(f"  {x} = Constant <value = int64[1] {{{getattr(grid, x)}}}> ()" for x in "HWDR")
    operands = {"H": ("value", 1), "W": ("value", 2), "D": ("value", 4), "R": ("weight", 4)}
    return "\n".join(f"  {x} = Shape <start = {n}, end = {n + 1}> ({name})" for x, (name, n) in operands.items())


def _pieces(grid: Grid | None) -> int:
    return 2 if grid is not None and max(grid.H, grid.W) <= EXACT_IN_TWO else 3


def _axis(a: str, grid: Grid | None, outer: str) -> str:
    """One direction's part of the body, `a` being row or col."""
    size = "H" if a == "row" else "W"
    if grid is None:
        grain = GRAIN.format(a=a)
    else:
        squared = 4.0 ** math.ceil(math.log2(getattr(grid, size)))
        grain = FIXED_GRAIN.format(a=a, grain=squared, finer=squared * 2.0**-24)
    numbers = [_number(f"{a}_{x}", f"{a}_{x}", size, "as_row", grid) for x in ("mu", "factor")]
    pieces, columns = COARSE.format(a=a), []
    for n in range(1, _pieces(grid) + 1):
        last = n == _pieces(grid)
        if not last:
            pieces += (FINER.format(a=a, n=n, before=n - 1) if n > 1 else "") + SPLIT.format(a=a, n=n, before=n - 1)
        A, B = (f"{a}_{x}{n - 1}" if last else f"{a}_{x}{n}_top" for x in "AB")
        pieces += COLUMNS.format(a=a, A=A, B=B)
        columns += [f"{A}_constant", f"{A}_linear", A]
    return AXIS.format(
        a=a,
        size=size,
        tiles="tiles" if a == "row" else "one_1",
        basis=", ".join([f"{a}_powers"] * _pieces(grid)),
        grain=grain,
        expand="".join(numbers),
        pieces=pieces,
        columns=", ".join(columns),
        outer=outer,
    )


def _number(x: str, result: str, cells: str, layout: str, grid: Grid | None) -> str:
    """Lay out one number of the field; a fixed field's becomes one per cell of the axis."""
    template = STEERED if grid is not None and grid.steered else EXPANDED
    return template.format(x=x, result=result, cells=cells, layout=layout)


def _tiled_field() -> str:
    perms = {"row_mu": "row", "row_factor": "row", "col_mu": "col", "col_factor": "col", "weight": "col"}
    by_axis = {"row": [0, 4, 1, 3, 2, 5], "col": [0, 4, 1, 2, 3, 5]}
    return TILED.format(lines="".join(TILED_NUMBER.format(x=x, perm=by_axis[a]) for x, a in perms.items()))


def _scans(grid: Grid, tile: str) -> str:
    sizes = {"H": grid.H, "W": grid.W, "D": grid.D, "C": grid.H // grid.rows, "I": grid.rows}
    sizes |= {"IR": grid.rows * grid.R, "WR": grid.W * grid.R}
    return SCANS.format(tile=tile, K=3 * _pieces(grid), **sizes)
