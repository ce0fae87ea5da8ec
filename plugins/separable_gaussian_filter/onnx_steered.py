"""The body of `SeparableGaussianFilter` for a steered field on a grid that the model fixes, as text for `onnx.parser`.

A Scan takes one head at a time, and where its filters are many an inner one a few rows: filters stay in a core's cache and
memory holds no [B, H, W, P, R, D] array. Numbers are laid out once so that no filter is transposed: transposes of two axes
are quick in ONNX Runtime, and those with contiguous runs of channels.

Short axes have their filters cells first, [cell, query]: all steps run along queries. Both products read them so, since
ONNX Runtime fuses a transpose that moves the first axis last. On longer axes the products lose more than the steps gain.

Axes: n head of an image, K columns of numbers, C tile of rows, I row in its tile, W column, R atom, Q = (R, I, W) of a tile.
"""

import math
from collections.abc import Iterable

from gaussport.plugins.separable_gaussian_filter import onnx_exponents as exponents
from gaussport.plugins.separable_gaussian_filter.onnx_body import Grid
from gaussport.plugins.separable_gaussian_filter.torch_op import LEAST_LOG, LEAST_VARIANCE

TILE = 2**18
"""Filter weights of one direction in a tile, at most: one megabyte, half of a core's cache."""

SHORT = 24
"""Cells of the longer axis up to which filters lie cells first."""

BODY = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} (value, offset, width, weight) => (output)
{{
  float_value = Cast <to = 1> (value)
  float_offset = Cast <to = 1> (offset)
  float_width = Cast <to = 1> (width)
  float_weight = Cast <to = 1> (weight)
  half = Constant <value = float {{0.5}}> ()
  least = Constant <value = float {{{least}}}> ()
  least_log = Constant <value = float {{{least_log}}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  ones_2 = Constant <value = int64[2] {{1, 1}}> ()
{constants}
  batch = Shape <end = 1> (value)
  each = Concat <axis = 0> (batch, ones_2)
{offset}
{width}
{weight}
  value_by_head = Transpose <perm = [0, 3, 1, 2, 4]> (float_value)
  values = Reshape (value_by_head, values_shape)
{filter}
  heads = Reshape (filtered, heads_shape)
  like = CastLike (heads, value)
  output = Transpose <perm = [0, 2, 3, 1, 4]> (like)
}}
"""

# An operand of the field, tokens last, one for each image.
OPERAND = """
  {x}_rows = Reshape (float_{x}, rows_shape)
  {x}_t = Transpose <perm = [0, 2, 1]> ({x}_rows)
  {x}_each = Expand ({x}_t, each)
  {result} = Reshape ({x}_each, {shape})
"""

# Columns of numbers of both directions at once, then apart: row as [n, C, K, W·R·I], col as [n, C, K, Q].
COLUMNS = """
  both_square = Mul (both_sigma, both_sigma)
  both_safe = Max (both_square, least)
  both_factor = Div (half, both_safe)
{lines}
  both_columns = Concat <axis = -4> ({columns})
  row_apart, col_apart = Split <axis = -2, num_outputs = 2> (both_columns)
{row_lay}
  row_flat = Reshape ({row_laid}, turned_shape)
  row_turned = Transpose <perm = [0, 2, 1]> (row_flat)
  all_row_columns = Reshape (row_turned, columns_shape)
{col_lay}
  all_col_columns = Reshape ({col_laid}, columns_shape)
{weight_lay}
  all_weights = Reshape ({weight_laid}, weights_shape)
"""
TILES = """
  {x}_rows_apart = Reshape ({given}, {x}_tiles_shape)
  {x}_tiled = Transpose <perm = {perm}> ({x}_rows_apart)
"""
ATOMS_LAST = """
  {x}_by_atom = Reshape ({given}, atoms_shape)
  {x}_atoms_last = Transpose <perm = [0, 2, 1]> ({x}_by_atom)
"""

# Places of all queries, row and column, [2, N]; ONNX Runtime folds this.
QUERIES = """
  row_places = Expand (row_place, places_shape)
  col_places = Expand (col_place, places_shape)
  places = Concat <axis = 0> (row_places, col_places)
  both_query = Reshape (places, queries_shape)
"""

CELLS_FIRST = """
  row_exponent = MatMul (row_basis, row_columns)
  row_log = Clip (row_exponent, least_log)
  row_gauss = Exp (row_log)
  row_total = MatMul (row_ones, row_gauss)
  row_share = Reciprocal (row_total)
  row_filter = Mul (row_gauss, row_share)
  row_cells = Reshape (row_filter, row_shape)
  row_matrix = Transpose <perm = [1, 2, 0]> (row_cells)
  row_pass = MatMul (row_matrix, columns_first)
  row_split = Reshape (row_pass, split_shape)
  row_moved = Transpose <perm = [2, 0, 1, 3]> (row_split)
  row_passed = Reshape (row_moved, passed_shape)
  col_exponent = MatMul (col_basis, col_columns)
  col_log = Clip (col_exponent, least_log)
  col_gauss = Exp (col_log)
  col_total = MatMul (col_ones, col_gauss)
  col_share = Div (weights, col_total)
  col_filter = Mul (col_gauss, col_share)
  col_cells = Reshape (col_filter, col_shape)
  col_matrix = Transpose <perm = [1, 2, 0]> (col_cells)
  filtered = MatMul (col_matrix, row_passed)
"""
CELLS_LAST = """
  row_lines = Transpose <perm = [1, 0]> (row_columns)
  row_exponent = MatMul (row_lines, row_basis)
  row_log = Clip (row_exponent, least_log)
  row_filter = Softmax <axis = -1> (row_log)
  row_matrix = Reshape (row_filter, row_shape)
  row_pass = MatMul (row_matrix, columns_first)
  row_split = Reshape (row_pass, split_shape)
  row_moved = Transpose <perm = [2, 1, 0, 3]> (row_split)
  row_passed = Reshape (row_moved, passed_shape)
  col_lines = Transpose <perm = [1, 0]> (col_columns)
  col_exponent = MatMul (col_lines, col_basis)
  col_log = Clip (col_exponent, least_log)
  col_gauss = Exp (col_log)
  col_total = ReduceSum <keepdims = 1> (col_gauss, last)
  col_share = Div (weights, col_total)
  col_filter = Mul (col_gauss, col_share)
  col_matrix = Reshape (col_filter, col_shape)
  filtered = MatMul (col_matrix, row_passed)
"""

HEADS = """
{numbers}
  filtered = Scan <num_scan_inputs = 4, body = head (
    float[{K}, {Q}] row_columns, float[{K}, {Q}] col_columns, float[{Qw}] weights, float[{H}, {W}, {D}] head_values
  ) => (float[{H}, {W}, {D}] filtered) {{
    columns_first = Transpose <perm = [1, 0, 2]> (head_values)
{tile}
  }}> (all_row_columns, all_col_columns, all_weights, values)
"""
HEADS_AND_TILES = """
  filtered = Scan <num_scan_inputs = 4, body = head (
    float[1, 1, {R}, 2, {N}] both_mu, float[1, 1, {R}, 2, {N}] both_sigma, float[1, {R}, {N}] head_weight,
    float[{H}, {W}, {D}] head_values
  ) => (float[{C}, {I}, {W}, {D}] head_output) {{
    columns_first = Transpose <perm = [1, 0, 2]> (head_values)
{numbers}
    head_output = Scan <num_scan_inputs = 3, body = tile (
      float[{K}, {Q}] row_columns, float[{K}, {Q}] col_columns, float[{Qw}] weights
    ) => (float[{I}, {W}, {D}] filtered) {{
{tile}
    }}> (all_row_columns, all_col_columns, all_weights)
  }}> (all_mu, all_sigma, all_weight, values)
"""


def rows_in_a_tile(grid: Grid) -> int:
    """Rows of the grid in one tile, a divisor of H; H where all is one tile."""
    per_row = grid.W * grid.R * max(grid.H, grid.W)
    if per_row * grid.H <= TILE:
        return grid.H
    divisors = [n for n in range(1, grid.H + 1) if grid.H % n == 0]
    return min(divisors, key=lambda n: abs(math.log(n * per_row / TILE)))


def text(domain: str, name: str, opset: int, grid: Grid) -> str:
    """The body for that grid."""
    H, W, P, D, R = grid.H, grid.W, grid.P, grid.D, grid.R
    I, N = rows_in_a_tile(grid), H * W  # noqa: E741
    C, tiled, short = H // I, I < H, max(H, W) <= SHORT
    pieces = exponents.pieces(max(H, W))
    K, Q = 3 * pieces, R * I * W
    weights_row = [1, Q] if short else [Q, 1]
    shapes = {
        "rows_shape": [0, N, -1],
        "places_shape": [1, H, W],
        "queries_shape": [2, N],
        "field_shape": [-1, 1, 1, R, 2, N] if tiled else [-1, 1, R, 2, N],
        "weight_shape": [-1, 1, R, N] if tiled else [-1, R, N],
        "values_shape": [-1, H, W, D],
        "heads_shape": [-1, P, H, W, D],
        "row_tiles_shape": [-1, K, R, C, I * W],
        "col_tiles_shape": [-1, K, R, C, I * W],
        "turned_shape": [-1, R * I, W],
        "atoms_shape": [-1, R, I * W],
        "columns_shape": [C, K, Q] if tiled else [-1, K, Q],
        "weight_tiles_shape": [-1, R, C, I * W],
        "weights_shape": [C, *weights_row] if tiled else [-1, *weights_row],
        "row_shape": [H, W, R * I] if short else [W, R * I, H],
        "split_shape": [W, R, I, D],
        "passed_shape": [I, W * R, D],
        "col_shape": [W * R, I, W] if short else [I, W, R * W],
    }
    constants = "".join(_integers(*item) for item in shapes.items()) + exponents.CONSTANTS + _places(grid, pieces, short)
    prefix = "all" if tiled else "both"
    return BODY.format(
        domain=domain,
        name=name,
        opset=opset,
        least=LEAST_VARIANCE,
        least_log=LEAST_LOG,
        constants=constants,
        offset=OPERAND.format(x="offset", result=f"{prefix}_mu", shape="field_shape"),
        width=OPERAND.format(x="width", result=f"{prefix}_sigma", shape="field_shape"),
        weight=OPERAND.format(x="weight", result="all_weight", shape="weight_shape"),
        filter=(HEADS_AND_TILES if tiled else HEADS).format(
            numbers=_numbers(pieces, H != W, tiled, short),
            tile=CELLS_FIRST if short else CELLS_LAST,
            H=H,
            W=W,
            D=D,
            R=R,
            N=N,
            C=C,
            I=I,
            K=K,
            Q=Q,
            Qw=str(weights_row)[1:-1],
        ),
    )


def _numbers(pieces: int, each: bool, tiled: bool, short: bool) -> str:
    """From `both_mu`, `both_sigma` and the weights to what a tile reads."""
    lines, columns = exponents.lines("both", pieces, each)
    laid: dict[str, str] = {}
    given = {"row": "row_apart", "col": "col_apart", "weight": "head_weight" if tiled else "all_weight"}
    for x, name in given.items():
        tiles = TILES.format(x=x, given=name, perm=[0, 2, 1, 3] if x == "weight" else [0, 3, 1, 2, 4]) if tiled else ""
        name = f"{x}_tiled" if tiled else name
        if x != "row" and not short:
            tiles += ATOMS_LAST.format(x=x, given=name)
            name = f"{x}_atoms_last"
        laid |= {f"{x}_lay": tiles, f"{x}_laid": name}
    return COLUMNS.format(lines=lines, columns=", ".join(columns), **laid)


def _places(grid: Grid, pieces: int, short: bool) -> str:
    """Places of queries and cells along each axis, counted from its middle, and their powers."""
    H, W = grid.H, grid.W
    places = {"row": [n - H // 2 for n in range(H)], "col": [n - W // 2 for n in range(W)]}
    text = _floats("row_place", [1, H, 1], places["row"]) + _floats("col_place", [1, 1, W], places["col"]) + QUERIES
    for name, cells in (("both_low", [-(H // 2), -(W // 2)]), ("both_high", [H - 1 - H // 2, W - 1 - W // 2])):
        text += _floats(name, [], cells[:1]) if H == W else _floats(name, [2, 1], cells)
    for n, coarse in enumerate(exponents.coarse(max(H, W)), 1):
        text += f"  both_coarse{n} = Constant <value = float {{{coarse}}}> ()\n"
    for a, cells in places.items():
        powers = [[-1, c, -c * c] * pieces for c in cells]
        if short:
            text += _floats(f"{a}_ones", [1, len(cells)], [1] * len(cells))
            text += _floats(f"{a}_basis", [len(cells), 3 * pieces], [x for row in powers for x in row])
        else:
            text += _floats(f"{a}_basis", [3 * pieces, len(cells)], [x for row in zip(*powers, strict=True) for x in row])
    return text


def _integers(name: str, values: Iterable[int]) -> str:
    listed = list(values)
    return f"  {name} = Constant <value = int64[{len(listed)}] {{{', '.join(map(str, listed))}}}> ()\n"


def _floats(name: str, shape: list[int], values: Iterable[float]) -> str:
    kind = f"float{shape}" if shape else "float"
    return f"  {name} = Constant <value = {kind} {{{', '.join(f'{x:.1f}' for x in values)}}}> ()\n"
