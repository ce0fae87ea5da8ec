"""Triton kernels of `LatentMemoryRouting`: write, combine and read; in one launch when the tokens are few.

Responsibilities Γ are made in registers beside the product that uses them and never stored. A split of the tokens writes a
partial memory M [K, dv] and mass Z [K]; partial sums are combined in a fixed order, so that equal inputs give equal bits.
Scores, softmax, Z and the division are float32. All tensors are contiguous; letters as in `schema`, S splits.

M and Γ meet the tensor cores in TF32, not in float16: a memory sums N values and a responsibility may be 1e-9, both outside
float16's range. Scores, whose squares cancel, are multiplied with `SCORES`, which keeps (nearly) all of float32.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
TWO_PI: tl.constexpr = tl.constexpr(6.283185307179586)


@triton.jit
def mixture(mean, variance, log_prior, p, K, DR: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_DR: tl.constexpr):
    """One head's Gaussians, ready for products with tokens [n, m]: score = x²·square + x·linear + constant.

    Scores are in bits (log₂). Softmax does not see what all components have in common, and float32 should not either: tokens
    are shifted by `centre`, the mean of the means, and the components' mean is taken from `square` and from `linear`. What
    cancels is then bounded by how far the components differ. Components past K have score −∞.

    Returns:
        square, linear [m, k]; constant [k]; centre [m].
    """
    k = tl.arange(0, BLOCK_K)
    m = tl.arange(0, BLOCK_DR)
    cell = (p * K + k)[None, :] * DR + m[:, None]
    inside = (k < K)[None, :] & (m < DR)[:, None]
    mu = tl.load(mean + cell, mask=inside, other=0.0).to(tl.float32)  # [m, k]
    sigma2 = tl.load(variance + cell, mask=inside, other=1.0).to(tl.float32)
    prior = tl.load(log_prior + p * K + k, mask=k < K, other=0.0).to(tl.float32)

    centre = tl.sum(mu, axis=1) / K
    mu = tl.where(inside, mu - centre[:, None], 0.0)
    precision = tl.where(inside, (1.0 / sigma2) * LOG2E, 0.0)
    spread = tl.where(inside, tl.log2(sigma2 * TWO_PI), 0.0)
    constant = prior * LOG2E - 0.5 * tl.sum(spread + mu * mu * precision, axis=0)
    constant = tl.where(k < K, constant, float("-inf"))
    square = -0.5 * precision
    linear = mu * precision
    square = tl.where(inside, square - (tl.sum(square, axis=1) / K)[:, None], 0.0)
    linear = tl.where(inside, linear - (tl.sum(linear, axis=1) / K)[:, None], 0.0)
    return square, linear, constant, centre


@triton.jit
def responsibilities(
    tokens, first, N, stride, centre, square, linear, constant,
    DR: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_DR: tl.constexpr, SCORES: tl.constexpr,
):  # fmt: skip
    """Γ [n, k] in float32 of BLOCK_N tokens from `first`; rows past N are 0. `stride` is elements between two tokens."""
    n = first + tl.arange(0, BLOCK_N)
    m = tl.arange(0, BLOCK_DR)
    cell = n.to(tl.int64)[:, None] * stride + m[None, :]
    x = tl.load(tokens + cell, mask=(n < N)[:, None] & (m < DR)[None, :], other=0.0).to(tl.float32)
    x = x - centre[None, :]
    score = tl.dot(x * x, square, input_precision=SCORES)
    score = tl.dot(x, linear, score, input_precision=SCORES) + constant[None, :]
    share = tl.exp2(score - tl.max(score, axis=1)[:, None])
    share = share * (1.0 / tl.sum(share, axis=1))[:, None]
    return tl.where((n < N)[:, None], share, 0.0)


@triton.jit
def writing_shares(
    key, key_mask, first, N, stride, centre, square, linear, constant,
    DR: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_DR: tl.constexpr, SCORES: tl.constexpr,
):  # fmt: skip
    """Γ_K [n, k], times the key mask where there is one."""
    share = responsibilities(
        key, first, N, stride, centre, square, linear, constant, DR, BLOCK_N, BLOCK_DR, SCORES
    )  # fmt: skip
    if MASKED:
        n = first + tl.arange(0, BLOCK_N)
        share = share * tl.load(key_mask + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
    return share


@triton.jit
def load_values(value, first, N, stride, d, DV: tl.constexpr, BLOCK_N: tl.constexpr):
    """Values [n, d] in float32; 0 past N."""
    n = first + tl.arange(0, BLOCK_N)
    cell = n.to(tl.int64)[:, None] * stride + d[None, :]
    return tl.load(value + cell, mask=(n < N)[:, None] & (d < DV)[None, :], other=0.0).to(tl.float32)


@triton.jit
def store_output(output, numerator, mass, first, N, stride, d, epsilon, DV: tl.constexpr, BLOCK_N: tl.constexpr):
    """numerator / (mass + ε) [n, d] for tokens before N."""
    n = first + tl.arange(0, BLOCK_N)
    cell = n.to(tl.int64)[:, None] * stride + d[None, :]
    result = numerator / (mass + epsilon)[:, None]
    tl.store(output + cell, result.to(output.dtype.element_ty), mask=(n < N)[:, None] & (d < DV)[None, :])


@triton.jit
def route_write(
    key, value, mean, variance, log_prior, key_mask, memory, mass,
    N, P, K, tokens_per_split,
    DR: tl.constexpr, DV: tl.constexpr, MASKED: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_DR: tl.constexpr, BLOCK_DV: tl.constexpr,
    SCORES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    """memory [B, S, P, K, dv] and mass [B, S, P, K] of each split of the tokens. Grid: (B · S · ⌈dv/BLOCK_DV⌉ · P,)."""
    program = tl.program_id(0)
    p = program % P
    program = program // P
    d0 = program % tl.cdiv(DV, BLOCK_DV) * BLOCK_DV
    program = program // tl.cdiv(DV, BLOCK_DV)
    splits = tl.cdiv(N, tokens_per_split)
    b = (program // splits).to(tl.int64)
    first = program % splits * tokens_per_split

    square, linear, constant, centre = mixture(mean, variance, log_prior, p, K, DR, BLOCK_K, BLOCK_DR)
    d = d0 + tl.arange(0, BLOCK_DV)
    k = tl.arange(0, BLOCK_K)
    key += (b * N * P + p) * DR
    value += (b * N * P + p) * DV
    if MASKED:
        key_mask += b * N
    M = tl.zeros([BLOCK_K, BLOCK_DV], tl.float32)
    Z = tl.zeros([BLOCK_K], tl.float32)
    for n0 in range(first, tl.minimum(first + tokens_per_split, N), BLOCK_N):
        share = writing_shares(
            key, key_mask, n0, N, P * DR, centre, square, linear, constant, DR, MASKED, BLOCK_N, BLOCK_DR, SCORES
        )  # fmt: skip
        source = load_values(value, n0, N, P * DV, d, DV, BLOCK_N)
        M = tl.dot(tl.trans(share), source, M, input_precision=PRODUCTS)
        Z += tl.sum(share, axis=0)

    slot = (program.to(tl.int64) * P + p) * K + k
    tl.store(memory + slot[:, None] * DV + d[None, :], M, mask=(k < K)[:, None] & (d < DV)[None, :])
    if d0 == 0:
        tl.store(mass + slot, Z, mask=k < K)


@triton.jit
def route_combine(memory, mass, S, slots, DV: tl.constexpr, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    """Sum partial memories over splits, in order and in place: into split 0, or (causal) into what each split finds,
    the sum of those before it. `slots` = P·K. Grid: (B · ⌈slots·(dv + 1) / BLOCK⌉,)."""
    elements = slots * (DV + 1)  # the memory's, then the mass's
    blocks = tl.cdiv(elements, BLOCK)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    e = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    memory += b * S * slots * DV
    mass += b * S * slots
    in_memory = e < slots * DV
    in_mass = (e >= slots * DV) & (e < elements)
    z = e - slots * DV
    total = tl.zeros([BLOCK], tl.float32)
    for s in range(S):
        part = tl.load(memory + s * slots * DV + e, mask=in_memory, other=0.0)
        part += tl.load(mass + s * slots + z, mask=in_mass, other=0.0)
        if CAUSAL:
            tl.store(memory + s * slots * DV + e, total, mask=in_memory)
            tl.store(mass + s * slots + z, total, mask=in_mass)
        total += part
    if not CAUSAL:
        tl.store(memory + e, total, mask=in_memory)
        tl.store(mass + z, total, mask=in_mass)


@triton.jit
def route_read(
    query, mean, variance, log_prior, memory, mass, output,
    epsilon, N, P, K, S,
    DR: tl.constexpr, DV: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_DR: tl.constexpr, BLOCK_DV: tl.constexpr,
    SCORES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    """Bidirectional read of the combined memory (split 0 of S). Grid: (B · ⌈N/BLOCK_N⌉ · ⌈dv/BLOCK_DV⌉ · P,)."""
    program = tl.program_id(0)
    p = program % P
    program = program // P
    d0 = program % tl.cdiv(DV, BLOCK_DV) * BLOCK_DV
    program = program // tl.cdiv(DV, BLOCK_DV)
    n0 = program % tl.cdiv(N, BLOCK_N) * BLOCK_N
    b = (program // tl.cdiv(N, BLOCK_N)).to(tl.int64)

    square, linear, constant, centre = mixture(mean, variance, log_prior, p, K, DR, BLOCK_K, BLOCK_DR)
    d = d0 + tl.arange(0, BLOCK_DV)
    k = tl.arange(0, BLOCK_K)
    slot = (b * S * P + p) * K + k
    M = tl.load(memory + slot[:, None] * DV + d[None, :], mask=(k < K)[:, None] & (d < DV)[None, :], other=0.0)
    Z = tl.load(mass + slot, mask=k < K, other=0.0)
    query += (b * N * P + p) * DR
    share = responsibilities(query, n0, N, P * DR, centre, square, linear, constant, DR, BLOCK_N, BLOCK_DR, SCORES)
    numerator = tl.dot(share, M, input_precision=PRODUCTS)
    total = tl.sum(share * Z[None, :], axis=1)
    store_output(output + (b * N * P + p) * DV, numerator, total, n0, N, P * DV, d, epsilon, DV, BLOCK_N)


@triton.jit
def route_causal(
    query, key, value, mean, variance, log_prior, key_mask, memory, mass, output,
    epsilon, N, P, K, tokens_per_split,
    DR: tl.constexpr, DV: tl.constexpr, MASKED: tl.constexpr, CARRIED: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_DR: tl.constexpr, BLOCK_DV: tl.constexpr,
    SCORES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    """Causal read in chunks of BLOCK_N tokens: inside a chunk by the masked affinity, across chunks by the running memory.

    A split starts from the memory that `route_combine` left for it (CARRIED), or from nothing when it is the only one.
    Grid: (B · S · ⌈dv/BLOCK_DV⌉ · P,).
    """
    program = tl.program_id(0)
    p = program % P
    program = program // P
    d0 = program % tl.cdiv(DV, BLOCK_DV) * BLOCK_DV
    program = program // tl.cdiv(DV, BLOCK_DV)
    splits = tl.cdiv(N, tokens_per_split)
    b = (program // splits).to(tl.int64)
    first = program % splits * tokens_per_split

    square, linear, constant, centre = mixture(mean, variance, log_prior, p, K, DR, BLOCK_K, BLOCK_DR)
    d = d0 + tl.arange(0, BLOCK_DV)
    k = tl.arange(0, BLOCK_K)
    n = tl.arange(0, BLOCK_N)
    query += (b * N * P + p) * DR
    key += (b * N * P + p) * DR
    value += (b * N * P + p) * DV
    output += (b * N * P + p) * DV
    if MASKED:
        key_mask += b * N
    if CARRIED:
        slot = (program.to(tl.int64) * P + p) * K + k
        M = tl.load(memory + slot[:, None] * DV + d[None, :], mask=(k < K)[:, None] & (d < DV)[None, :], other=0.0)
        Z = tl.load(mass + slot, mask=k < K, other=0.0)
    else:
        M = tl.zeros([BLOCK_K, BLOCK_DV], tl.float32)
        Z = tl.zeros([BLOCK_K], tl.float32)
    for n0 in range(first, tl.minimum(first + tokens_per_split, N), BLOCK_N):
        read = responsibilities(query, n0, N, P * DR, centre, square, linear, constant, DR, BLOCK_N, BLOCK_DR, SCORES)
        write = writing_shares(
            key, key_mask, n0, N, P * DR, centre, square, linear, constant, DR, MASKED, BLOCK_N, BLOCK_DR, SCORES
        )  # fmt: skip
        source = load_values(value, n0, N, P * DV, d, DV, BLOCK_N)
        affinity = tl.dot(read, tl.trans(write), input_precision=PRODUCTS)  # [reader, writer]
        affinity = tl.where(n[:, None] >= n[None, :], affinity, 0.0)
        numerator = tl.dot(read, M, input_precision=PRODUCTS)
        numerator = tl.dot(affinity, source, numerator, input_precision=PRODUCTS)
        total = tl.sum(affinity, axis=1) + tl.sum(read * Z[None, :], axis=1)
        store_output(output, numerator, total, n0, N, P * DV, d, epsilon, DV, BLOCK_N)
        M = tl.dot(tl.trans(write), source, M, input_precision=PRODUCTS)
        Z += tl.sum(write, axis=0)


@triton.jit
def route_fused(
    query, key, value, mean, variance, log_prior, key_mask, output,
    epsilon, N, P, K,
    DR: tl.constexpr, DV: tl.constexpr, MASKED: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_DR: tl.constexpr, BLOCK_DV: tl.constexpr,
    SCORES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    """Bidirectional write and read of all tokens of one head by one program: the memory never leaves the chip.

    Grid: (B · ⌈dv/BLOCK_DV⌉ · P,).
    """
    program = tl.program_id(0)
    p = program % P
    program = program // P
    d0 = program % tl.cdiv(DV, BLOCK_DV) * BLOCK_DV
    b = (program // tl.cdiv(DV, BLOCK_DV)).to(tl.int64)

    square, linear, constant, centre = mixture(mean, variance, log_prior, p, K, DR, BLOCK_K, BLOCK_DR)
    d = d0 + tl.arange(0, BLOCK_DV)
    query += (b * N * P + p) * DR
    key += (b * N * P + p) * DR
    value += (b * N * P + p) * DV
    output += (b * N * P + p) * DV
    if MASKED:
        key_mask += b * N
    M = tl.zeros([BLOCK_K, BLOCK_DV], tl.float32)
    Z = tl.zeros([BLOCK_K], tl.float32)
    for n0 in range(0, N, BLOCK_N):
        share = writing_shares(
            key, key_mask, n0, N, P * DR, centre, square, linear, constant, DR, MASKED, BLOCK_N, BLOCK_DR, SCORES
        )  # fmt: skip
        source = load_values(value, n0, N, P * DV, d, DV, BLOCK_N)
        M = tl.dot(tl.trans(share), source, M, input_precision=PRODUCTS)
        Z += tl.sum(share, axis=0)
    for n0 in range(0, N, BLOCK_N):
        share = responsibilities(query, n0, N, P * DR, centre, square, linear, constant, DR, BLOCK_N, BLOCK_DR, SCORES)
        numerator = tl.dot(share, M, input_precision=PRODUCTS)
        total = tl.sum(share * Z[None, :], axis=1)
        store_output(output, numerator, total, n0, N, P * DV, d, epsilon, DV, BLOCK_N)
