"""Triton kernels of `SeparableGaussianFilter`: one launch that keeps the row pass on chip, or a row pass and a column pass.

Both passes are products of tiles of Gaussian weights with tiles of values. The weights are made in registers from μ and σ
and never stored. They are counted from the cell nearest to the atom's centre, log₂ = −step·(step + 2·excess)·log₂e / 2σ²,
which is 0 at that cell and negative elsewhere: no maximum is searched, nothing cancels when μ lies far off the grid, and
nothing is 0/0 as σ → 0. Exponents and sums are float32. All tensors are contiguous; letters as in `schema`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import triton
import triton.language as tl

LEAST_VARIANCE: tl.constexpr = tl.constexpr(1e-36)  # cells²; finite when inverted, and too narrow to move any weight
INTEGERS: tl.constexpr = tl.constexpr(12582912.0)  # 1.5 · 2²³: float32 has no fractions here; adding it rounds
HALF_LOG2E: tl.constexpr = tl.constexpr(0.7213475204444817)
WINDOW_BITS: tl.constexpr = tl.constexpr(24.0)  # weights below 2⁻²⁴ of the largest are left out, a whole tile at a time


@triton.jit
def centre(query, mu, cells):
    """The cell nearest to query − μ inside the grid, and `excess` = (query − nearest) − μ; all float32."""
    rounded = (mu + INTEGERS) - INTEGERS  # query − μ is not exact, and may round to the other side of a half
    nearest = tl.minimum(tl.maximum(query - rounded, 0.0), cells - 1.0)
    return nearest, (query - nearest) - mu


@triton.jit
def sharpness(sigma):
    """log₂e / 2σ², bounded."""
    return (1.0 / tl.maximum(sigma * sigma, LEAST_VARIANCE)) * HALF_LOG2E


@triton.jit
def gaussian(nearest, excess, sharp, cell, cells):
    """Weights of `cell` relative to the nearest cell, which has 1; cells off the grid have 0.

    `nearest`, `excess` and `sharp` broadcast against `cell`, whose last axis is the one summed over.
    """
    step = nearest - cell
    fall = tl.maximum(step * (step + 2.0 * excess), 0.0)  # rounding may not lift a cell above the nearest one
    return tl.where(cell < cells, tl.exp2(-fall * sharp), 0.0)


@triton.jit
def reach(excess, sharp):
    """Steps from the nearest cell, (toward lower cells, toward higher cells), beyond which every weight is < 2⁻²⁴.

    step² + 2·step·excess > r² with r² = 24 / sharp outside the roots −excess ± √(excess² + r²); the root that would cancel
    is written as a quotient.
    """
    squared = (1.0 / sharp) * WINDOW_BITS
    root = tl.sqrt(excess * excess + squared)
    far = tl.abs(excess) + root
    near = squared / far
    lower = tl.where(excess > 0.0, near, far)  # largest step > 0: cells below the nearest one
    higher = tl.where(excess > 0.0, far, near)
    return lower, higher


@triton.jit
def filter_fused(
    value, offset, width, weight, output,
    field_batch, H, W, P,
    R: tl.constexpr, D: tl.constexpr, FIXED: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Both passes for BLOCK_I output rows, the whole grid's columns and BLOCK_D channels of one head of one image.

    BLOCK_H ≥ H and BLOCK_W ≥ W: the value tile and the row pass of one atom stay on chip. `field_batch` is the tokens
    between two images' fields, 0 when they share one. Grid: (B · ⌈H/BLOCK_I⌉ · ⌈D/BLOCK_D⌉ · P,), heads fastest.
    """
    program = tl.program_id(0)
    p = program % P
    program = program // P
    d0 = program % tl.cdiv(D, BLOCK_D) * BLOCK_D
    program = program // tl.cdiv(D, BLOCK_D)
    i0 = program % tl.cdiv(H, BLOCK_I) * BLOCK_I
    b = (program // tl.cdiv(H, BLOCK_I)).to(tl.int64)

    i = i0 + tl.arange(0, BLOCK_I)
    j = tl.arange(0, BLOCK_H)
    k = tl.arange(0, BLOCK_W)
    d = d0 + tl.arange(0, BLOCK_D)
    value += b * H * W * P * D + p * D
    output += b * H * W * P * D + p * D
    field = (b * field_batch * P + p) * R

    cell = (j[None, :, None] * W + k[:, None, None]) * (P * D) + d[None, None, :]
    inside = (k < W)[:, None, None] & (j < H)[None, :, None] & (d < D)[None, None, :]
    tile = tl.load(value + cell, mask=inside, other=0.0)  # [k, j, d]
    if tile.dtype == tl.bfloat16:
        tile = tile.to(tl.float32)

    if FIXED:  # one field for all tokens: weights of one column serve all, weights of one row serve all
        row_token = tl.zeros([1, 1, 1], tl.int32)
        col_token = tl.zeros([1, 1, 1], tl.int32)
        row_inside = tl.full([1, 1, 1], True, tl.int1)
        col_inside = tl.full([1, 1, 1], True, tl.int1)
    else:
        row_token = (i[None, :, None] * W + k[:, None, None]) * (P * R)  # [k, i, 1], intermediate token (i, k)
        col_token = (i[:, None, None] * W + k[None, :, None]) * (P * R)  # [i, w, 1], query (i, w)
        row_inside = (i < H)[None, :, None] & (k < W)[:, None, None]
        col_inside = (i < H)[:, None, None] & (k < W)[None, :, None]

    i_row = i.to(tl.float32)[None, :, None]
    j_row = j.to(tl.float32)[None, None, :]
    w_col = k.to(tl.float32)[None, :, None]
    k_col = k.to(tl.float32)[None, None, :]
    total = tl.zeros([BLOCK_I, BLOCK_W, BLOCK_D], tl.float32)
    for r in range(R):
        atom = field + r
        mu = tl.load(offset + (atom + row_token) * 2, mask=row_inside, other=0.0).to(tl.float32)
        sigma = tl.load(width + (atom + row_token) * 2, mask=row_inside, other=1.0).to(tl.float32)
        nearest, excess = centre(i_row, mu, H)
        row = gaussian(nearest, excess, sharpness(sigma), j_row, H)  # [k or 1, i, j]
        row = row * (1.0 / tl.sum(row, axis=2, keep_dims=True))
        row = tl.broadcast_to(row, [BLOCK_W, BLOCK_I, BLOCK_H])
        passed = tl.dot(row.to(tile.dtype), tile, input_precision=PRECISION)  # [k, i, d]
        passed = tl.permute(passed, (1, 0, 2)).to(tile.dtype)

        mu = tl.load(offset + (atom + col_token) * 2 + 1, mask=col_inside, other=0.0).to(tl.float32)
        sigma = tl.load(width + (atom + col_token) * 2 + 1, mask=col_inside, other=1.0).to(tl.float32)
        mix = tl.load(weight + atom + col_token, mask=col_inside, other=0.0).to(tl.float32)
        nearest, excess = centre(w_col, mu, W)
        col = gaussian(nearest, excess, sharpness(sigma), k_col, W)  # [i or 1, w, k]
        col = col * (mix / tl.sum(col, axis=2, keep_dims=True))
        col = tl.broadcast_to(col, [BLOCK_I, BLOCK_W, BLOCK_W])
        total = tl.dot(col.to(tile.dtype), passed, total, input_precision=PRECISION)  # [i, w, d]

    cell = (i[:, None, None] * W + k[None, :, None]) * (P * D) + d[None, None, :]
    inside = (i < H)[:, None, None] & (k < W)[None, :, None] & (d < D)[None, None, :]
    tl.store(output + cell, total.to(output.dtype.element_ty), mask=inside)


@triton.jit
def window(nearest, excess, sharp, inside, cells, BLOCK: tl.constexpr):
    """First and past-the-last tile of BLOCK cells that holds a weight ≥ 2⁻²⁴ of the largest, for any of these queries."""
    lower, higher = reach(excess, sharp)
    first = tl.maximum(nearest - lower, 0.0)
    last = tl.minimum(nearest + higher, cells - 1.0)
    first = tl.min(tl.where(inside, first, cells - 1.0), axis=0).to(tl.int32)  # rounds down
    last = tl.max(tl.where(inside, last, 0.0), axis=0).to(tl.int32)  # a fraction reaches no further cell
    return first // BLOCK, last // BLOCK + 1


@triton.jit
def filter_rows(
    value, offset, width, passed,
    field_batch, H, W, P,
    R: tl.constexpr, D: tl.constexpr, FIXED: tl.constexpr, WINDOW: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Row pass of grids too large for one chip's tile: passed [B, H, W, P, R, D] from value [B, H, W, P, D].

    One program does BLOCK_I rows of one column, all atoms. Grid: (B · W · ⌈H/BLOCK_I⌉ · ⌈D/BLOCK_D⌉ · P,).
    """
    program = tl.program_id(0)
    p = program % P
    program = program // P
    d0 = program % tl.cdiv(D, BLOCK_D) * BLOCK_D
    program = program // tl.cdiv(D, BLOCK_D)
    k = program % W
    program = program // W
    i0 = program % tl.cdiv(H, BLOCK_I) * BLOCK_I
    b = (program // tl.cdiv(H, BLOCK_I)).to(tl.int64)

    i = i0 + tl.arange(0, BLOCK_I)
    d = d0 + tl.arange(0, BLOCK_D)
    inside = i < H
    if FIXED:
        token = tl.zeros([BLOCK_I], tl.int32)
    else:
        token = (i * W + k) * (P * R)
    value += (b * H * W + k) * (P * D) + p * D
    passed += ((b * H * W + k) * P + p) * (R * D)
    field = (b * field_batch * P + p) * R

    for r in range(R):
        atom = field + r
        mu = tl.load(offset + (atom + token) * 2, mask=inside, other=0.0).to(tl.float32)
        sigma = tl.load(width + (atom + token) * 2, mask=inside, other=1.0).to(tl.float32)
        nearest, excess = centre(i.to(tl.float32), mu, H)
        sharp = sharpness(sigma)
        first, last = 0, tl.cdiv(H, BLOCK_J)
        if WINDOW:
            first, last = window(nearest, excess, sharp, inside, H, BLOCK_J)
        total = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
        mass = tl.zeros([BLOCK_I], tl.float32)
        for tile in range(first, last):
            j = tile * BLOCK_J + tl.arange(0, BLOCK_J)
            row = gaussian(nearest[:, None], excess[:, None], sharp[:, None], j.to(tl.float32)[None, :], H)  # [i, j]
            mass += tl.sum(row, axis=1)
            cell = j.to(tl.int64)[:, None] * (W * P * D) + d[None, :]
            source = tl.load(value + cell, mask=(j < H)[:, None] & (d < D)[None, :], other=0.0)  # [j, d]
            if source.dtype == tl.bfloat16:
                source = source.to(tl.float32)
            total = tl.dot(row.to(source.dtype), source, total, input_precision=PRECISION)
        total = total / tl.where(inside, mass, 1.0)[:, None]
        cell = i.to(tl.int64)[:, None] * (W * P * R * D) + r * D + d[None, :]
        tl.store(passed + cell, total.to(passed.dtype.element_ty), mask=inside[:, None] & (d < D)[None, :])


@triton.jit
def filter_columns(
    passed, offset, width, weight, output,
    field_batch, H, W, P,
    R: tl.constexpr, D: tl.constexpr, FIXED: tl.constexpr, WINDOW: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Column pass and mixing of atoms: output [B, H, W, P, D] from passed [B, H, W, P, R, D].

    One program does BLOCK_Q queries of one row. Grid: (B · H · ⌈W/BLOCK_Q⌉ · ⌈D/BLOCK_D⌉ · P,).
    """
    program = tl.program_id(0)
    p = program % P
    program = program // P
    d0 = program % tl.cdiv(D, BLOCK_D) * BLOCK_D
    program = program // tl.cdiv(D, BLOCK_D)
    w0 = program % tl.cdiv(W, BLOCK_Q) * BLOCK_Q
    program = program // tl.cdiv(W, BLOCK_Q)
    i = program % H
    b = (program // H).to(tl.int64)

    w = w0 + tl.arange(0, BLOCK_Q)
    d = d0 + tl.arange(0, BLOCK_D)
    inside = w < W
    if FIXED:
        token = tl.zeros([BLOCK_Q], tl.int32)
    else:
        token = (i * W + w) * (P * R)
    passed += ((b * H + i) * W * P + p) * (R * D)
    output += ((b * H + i) * W * P + p) * D
    field = (b * field_batch * P + p) * R

    mixed = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    for r in range(R):
        atom = field + r
        mu = tl.load(offset + (atom + token) * 2 + 1, mask=inside, other=0.0).to(tl.float32)
        sigma = tl.load(width + (atom + token) * 2 + 1, mask=inside, other=1.0).to(tl.float32)
        mix = tl.load(weight + atom + token, mask=inside, other=0.0).to(tl.float32)
        nearest, excess = centre(w.to(tl.float32), mu, W)
        sharp = sharpness(sigma)
        first, last = 0, tl.cdiv(W, BLOCK_K)
        if WINDOW:
            first, last = window(nearest, excess, sharp, inside, W, BLOCK_K)
        total = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
        mass = tl.zeros([BLOCK_Q], tl.float32)
        for tile in range(first, last):
            k = tile * BLOCK_K + tl.arange(0, BLOCK_K)
            col = gaussian(nearest[:, None], excess[:, None], sharp[:, None], k.to(tl.float32)[None, :], W)  # [w, k]
            mass += tl.sum(col, axis=1)
            cell = k.to(tl.int64)[:, None] * (P * R * D) + r * D + d[None, :]
            source = tl.load(passed + cell, mask=(k < W)[:, None] & (d < D)[None, :], other=0.0)  # [k, d]
            total = tl.dot(col.to(source.dtype), source, total, input_precision=PRECISION)
        mixed += total * (mix / tl.where(inside, mass, 1.0))[:, None]

    cell = w.to(tl.int64)[:, None] * (P * D) + d[None, :]
    tl.store(output + cell, mixed.to(output.dtype.element_ty), mask=inside[:, None] & (d < D)[None, :])
