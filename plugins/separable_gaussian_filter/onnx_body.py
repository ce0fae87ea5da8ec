"""The body of `SeparableGaussianFilter` for a fixed field, and for grids of dynamic size, as text for `onnx.parser`.

The whole field is filtered at once. What follows from sizes that a model fixes is folded when ONNX Runtime loads it: of a
fixed field whose numbers are constants, all but the two products with the values. `onnx_steered` is that of a steered field.

Axes: b, P head, I row, W column, R atom, K column of numbers.
"""

from dataclasses import dataclass

from gaussport.plugins.separable_gaussian_filter import onnx_exponents as exponents
from gaussport.plugins.separable_gaussian_filter.torch_op import LEAST_LOG, LEAST_VARIANCE

BODY = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} (value, offset, width, weight) => (output)
{{
  float_value = Cast <to = 1> (value)
  float_offset = Cast <to = 1> (offset)
  float_width = Cast <to = 1> (width)
  float_weight = Cast <to = 1> (weight)
{sizes}
  first_axis = Constant <value = int64[1] {{0}}> ()
  one_1 = Constant <value = int64[1] {{1}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  keep_3 = Constant <value = int64[3] {{0, 0, 0}}> ()
  as_row = Constant <value = int64[5] {{0, 0, 0, 1, -1}}> ()
  as_column = Constant <value = int64[5] {{0, 0, 0, -1, 1}}> ()
  zero = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  two = Constant <value = int64 {{2}}> ()
  half = Constant <value = float {{0.5}}> ()
  least = Constant <value = float {{{least}}}> ()
  least_log = Constant <value = float {{{least_log}}}> ()
{constants}
  square = Mul (float_width, float_width)
  safe = Max (square, least)
  factor = Div (half, safe)
  row_factor_flat, col_factor_flat = Split <axis = -1, num_outputs = 2> (factor)
  row_mu_flat, col_mu_flat = Split <axis = -1, num_outputs = 2> (float_offset)
  weight_flat = Unsqueeze (float_weight, last)
{row}
{col}
  values = Transpose <perm = [0, 3, 2, 1, 4]> (float_value)
  row_lines = Transpose <perm = [0, 1, 2, 4, 3]> (row_columns)
  row_exponent = MatMul (row_lines, row_basis)
  row_log = Clip (row_exponent, least_log)
  row_filter = Softmax <axis = -1> (row_log)
  row_pass = MatMul (row_filter, values)
  turn_shape = Concat <axis = 0> (keep_3, H, R, D)
  row_split = Reshape (row_pass, turn_shape)
  row_turned = Transpose <perm = [0, 1, 3, 4, 2, 5]> (row_split)
  join_shape = Concat <axis = 0> (keep_3, last, D)
  row_passed = Reshape (row_turned, join_shape)
  col_lines = Transpose <perm = [0, 1, 2, 4, 3]> (col_columns)
  col_exponent = MatMul (col_lines, col_basis)
  col_log = Clip (col_exponent, least_log)
  col_gauss = Exp (col_log)
  col_total = ReduceSum <keepdims = 1> (col_gauss, last)
  col_share = Div (weight_column, col_total)
  col_filter = Mul (col_gauss, col_share)
  matrix_shape = Concat <axis = 0> (keep_3, W, last)
  col_matrix = Reshape (col_filter, matrix_shape)
  filtered = MatMul (col_matrix, row_passed)
  like = CastLike (filtered, value)
  output = Transpose <perm = [0, 2, 3, 1, 4]> (like)
}}
"""

# One direction's numbers as [b, P, ·, 1, I·R], and their columns [b, P, ·, K, I·R].
AXIS = """
  {a}_size = Squeeze ({size})
  {a}_int = Range (zero, {a}_size, one)
  {a}_cells = Cast <to = 1> ({a}_int)
  {a}_middle_int = Div ({a}_size, two)
  {a}_middle = Cast <to = 1> ({a}_middle_int)
  {a}_place_flat = Sub ({a}_cells, {a}_middle)
  {a}_low = Neg ({a}_middle)
  {a}_length = Cast <to = 1> ({a}_size)
  {a}_end = Sub ({a}_length, unit)
  {a}_high = Sub ({a}_end, {a}_middle)
  {a}_place = Unsqueeze ({a}_place_flat, first_axis)
  {a}_minus_place = Neg ({a}_place)
  {a}_minus_square = Mul ({a}_place, {a}_minus_place)
  {a}_nothing = Sub ({a}_place, {a}_place)
  {a}_minus_one = Sub ({a}_nothing, unit)
  {a}_powers = Concat <axis = 0> ({a}_minus_one, {a}_place, {a}_minus_square)
  {a}_basis = Concat <axis = 0> ({basis})
  {a}_place_column = Unsqueeze ({a}_place_flat, one_1)
  {a}_atoms = Concat <axis = 0> (one_1, R)
  {a}_by_atom = Expand ({a}_place_column, {a}_atoms)
  {a}_query = Reshape ({a}_by_atom, last)
{coarse}
{numbers}
{lines}
  {a}_columns = Concat <axis = 3> ({columns})
"""
NUMBER = """
  {x}_grid = Transpose <perm = {perm}> ({x}_flat)
  {x}_cells = Concat <axis = 0> (one_1, {size}, R, one_1)
  {x}_field = Expand ({x}_grid, {x}_cells)
  {result} = Reshape ({x}_field, {layout})
"""

# `onnx_exponents.coarse` of a size that only a run knows.
GRAIN = """
  {a}_four = Constant <value = float {{4.0}}> ()
  {a}_ln_two = Constant <value = float {{0.6931471805599453}}> ()
  {a}_fewest = Constant <value = float {{2.0}}> ()
  {a}_start = Constant <value = float {{24.0}}> ()
  {a}_ulp = Constant <value = float {{5.9604644775390625e-08}}> ()
  {a}_ln = Log ({a}_length)
  {a}_log_two = Div ({a}_ln, {a}_ln_two)
  {a}_log_up = Ceil ({a}_log_two)
  {a}_bits = Max ({a}_log_up, {a}_fewest)
  {a}_squared = Pow ({a}_four, {a}_bits)
  {a}_finer = Mul ({a}_squared, {a}_ulp)
  {a}_coarse1 = Mul ({a}_squared, {a}_start)
  {a}_coarse2 = Mul ({a}_coarse1, {a}_finer)
"""


@dataclass(frozen=True)
class Grid:
    """Sizes that a model fixes."""

    H: int
    W: int
    P: int
    D: int
    R: int


def text(domain: str, name: str, opset: int, grid: Grid | None) -> str:
    """The body for a grid whose sizes the model fixes, or for any."""
    weight = NUMBER.format(x="weight", result="weight_column", size="W", layout="as_column", perm=[0, 3, 1, 2, 4, 5])
    return BODY.format(
        domain=domain,
        name=name,
        opset=opset,
        sizes=_sizes(grid),
        least=LEAST_VARIANCE,
        least_log=LEAST_LOG,
        constants=exponents.CONSTANTS,
        row=_axis("row", grid),
        col=_axis("col", grid) + weight,
    )


def _sizes(grid: Grid | None) -> str:
    if grid is not None:
        return "\n".join(f"  {x} = Constant <value = int64[1] {{{getattr(grid, x)}}}> ()" for x in "HWDR")
    operands = {"H": ("value", 1), "W": ("value", 2), "D": ("value", 4), "R": ("weight", 4)}
    return "\n".join(f"  {x} = Shape <start = {n}, end = {n + 1}> ({name})" for x, (name, n) in operands.items())


def _axis(a: str, grid: Grid | None) -> str:
    """One direction's part of the body, `a` being row or col."""
    size, perm = ("H", [0, 3, 2, 1, 4, 5]) if a == "row" else ("W", [0, 3, 1, 2, 4, 5])
    if grid is None:
        pieces, coarse = exponents.pieces(2**10), GRAIN.format(a=a)
    else:
        pieces, listed = exponents.pieces(getattr(grid, size)), exponents.coarse(getattr(grid, size))
        coarse = "\n".join(f"  {a}_coarse{n} = Constant <value = float {{{x}}}> ()" for n, x in enumerate(listed, 1))
    numbers = (
        NUMBER.format(x=f"{a}_{x}", result=f"{a}_{x}", size=size, layout="as_row", perm=perm) for x in ("mu", "factor")
    )
    lines, columns = exponents.lines(a, pieces)
    return AXIS.format(
        a=a,
        size=size,
        basis=", ".join([f"{a}_powers"] * pieces),
        coarse=coarse,
        numbers="".join(numbers),
        lines=lines,
        columns=", ".join(columns),
    )
