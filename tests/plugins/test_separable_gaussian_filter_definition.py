"""The float64 definition of SeparableGaussianFilter against oracles of other projects, and its named rules."""

import kornia
import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaussport.plugins.separable_gaussian_filter.definition import separable_gaussian_filter
from gaussport.plugins.separable_gaussian_filter.tolerances import FLOAT64

Array = NDArray[np.float64]
SIDES = st.integers(1, 9)
SIGMAS = st.floats(-4, 4).map(lambda exponent: 10.0**exponent)


def fixed_field(mu: tuple[float, float], sigma: tuple[float, float]) -> tuple[Array, Array, Array]:
    """Offset, width and weight of one atom that all tokens share."""
    shape = (1, 1, 1, 1, 1, 2)
    return np.reshape(mu, shape), np.reshape(sigma, shape), np.ones(shape[:-1])


def steered_field(rng: np.random.Generator, grid: tuple[int, ...], sigma: float, reach: float) -> tuple[Array, Array, Array]:
    """A field of its own for each token of [b, h, w, P, R], some weights exactly zero, each mixture summing to one."""
    offset = rng.normal(size=(*grid, 2)) * reach
    width = sigma * rng.uniform(0.5, 2, size=(*grid, 2))
    weight = rng.uniform(size=grid) * (rng.uniform(size=grid) > 0.3)
    weight[..., 0] += 1e-3
    return offset, width, weight / weight.sum(-1, keepdims=True)


def implied_attention(offset: Array, width: Array, weight: Array, H: int, W: int) -> Array:
    """A((i,w),(j,k)) = Σ_r λ_r(i,w)·col_r(i,w)[k]·row_r(i,k)[j] as [B, P, N, N], by loops over the formula of OPS.md."""
    B, _, _, P, R = weight.shape
    affinity = np.zeros((B, P, H, W, H, W))
    i, j = np.arange(H)[:, None], np.arange(H)
    w, k = np.arange(W)[:, None], np.arange(W)
    for b, p, r in np.ndindex(B, P, R):
        row = np.empty((H, W, H))  # [i, k, j]
        col = np.empty((H, W, W))  # [i, w, k]
        for token in range(W):
            exponent = -((i - j - offset[b, :, token, p, r, 0, None]) ** 2) / (2 * width[b, :, token, p, r, 0, None] ** 2)
            row[:, token] = scipy.special.softmax(exponent, axis=-1)
        for token in range(H):
            exponent = -((w - k - offset[b, token, :, p, r, 1, None]) ** 2) / (2 * width[b, token, :, p, r, 1, None] ** 2)
            col[token] = scipy.special.softmax(exponent, axis=-1)
        affinity[b, p] += np.einsum("iw,iwk,ikj->iwjk", weight[b, :, :, p, r], col, row)
    return affinity.reshape(B, P, H * W, H * W)


@given(H=SIDES, W=SIDES, row_sigma=SIGMAS, col_sigma=SIGMAS, seed=st.integers(0, 999))
def test_fixed_field_without_offset_is_scipys_gaussian_filter(
    H: int, W: int, row_sigma: float, col_sigma: float, seed: int
) -> None:
    value = np.random.default_rng(seed).normal(size=(H, W))
    wanted = value
    for axis, sigma, length in ((0, row_sigma, H), (1, col_sigma, W)):
        options = {"mode": "constant", "radius": max(length - 1, 1), "axis": axis}
        ones = scipy.ndimage.gaussian_filter1d(np.ones((H, W)), sigma, **options)
        wanted = scipy.ndimage.gaussian_filter1d(wanted, sigma, **options) / ones
    got = separable_gaussian_filter(value[None, :, :, None, None], *fixed_field((0, 0), (row_sigma, col_sigma)))
    np.testing.assert_allclose(got[0, :, :, 0, 0], wanted, atol=FLOAT64, rtol=0)


@given(
    H=SIDES, W=SIDES, mu=st.tuples(st.floats(-6, 6), st.floats(-6, 6)), sigma=st.floats(0.3, 50), seed=st.integers(0, 999)
)
def test_fixed_field_with_offset_is_scipys_correlation(
    H: int, W: int, mu: tuple[float, float], sigma: float, seed: int
) -> None:
    value = np.random.default_rng(seed).normal(size=(H, W))
    wanted = value
    for axis, shift, length in ((0, mu[0], H), (1, mu[1], W)):
        x = np.arange(-max(length - 1, 1), max(length - 1, 1) + 1)
        weights = np.exp(-((x + shift) ** 2) / (2 * sigma**2))
        ones = scipy.ndimage.correlate1d(np.ones((H, W)), weights, axis=axis, mode="constant")
        # scipy takes weights for symmetric when they differ by less than 2.2e-16, so tails alone must not decide a cell
        assume(ones.min() > 1e-3)
        wanted = scipy.ndimage.correlate1d(wanted, weights, axis=axis, mode="constant") / ones
    got = separable_gaussian_filter(value[None, :, :, None, None], *fixed_field(mu, (sigma, sigma)))
    np.testing.assert_allclose(got[0, :, :, 0, 0], wanted, atol=FLOAT64, rtol=0)


@pytest.mark.parametrize(("H", "W", "sigma"), [(5, 9, 0.7), (8, 3, 2.0), (7, 7, 30.0)])
def test_fixed_field_is_kornias_gaussian_blur(H: int, W: int, sigma: float) -> None:
    value = torch.randn(1, 1, H, W, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel, sigmas = (2 * H - 1, 2 * W - 1), (sigma, sigma)
    # kornia pads by hand and refuses pads wider than the picture unless they are constant.
    blurred, ones = (
        kornia.filters.gaussian_blur2d(x, kernel, sigmas, border_type="constant") for x in (value, torch.ones_like(value))
    )
    got = separable_gaussian_filter(value.view(1, H, W, 1, 1).numpy(), *fixed_field((0, 0), (sigma, sigma)))
    np.testing.assert_allclose(got[0, :, :, 0, 0], (blurred / ones)[0, 0].numpy(), atol=FLOAT64, rtol=0)


@settings(max_examples=30)
@given(
    H=st.integers(1, 6),
    W=st.integers(1, 6),
    P=st.integers(1, 3),
    R=st.integers(1, 8),
    D=st.integers(1, 5),
    batched=st.booleans(),
    steered=st.booleans(),
    sigma=SIGMAS,
    reach=st.sampled_from([0.0, 1.0, 40.0]),
    seed=st.integers(0, 999),
)
def test_any_field_is_torch_sdpa_with_log_affinity(
    H: int, W: int, P: int, R: int, D: int, batched: bool, steered: bool, sigma: float, reach: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    B = 2
    value = rng.normal(size=(B, H, W, P, D))
    grid = (H, W) if steered else (1, 1)
    offset, width, weight = steered_field(rng, (B if batched else 1, *grid, P, R), sigma, reach)
    full = (len(weight), H, W, P, R)
    each = np.broadcast_to(offset, (*full, 2)), np.broadcast_to(width, (*full, 2)), np.broadcast_to(weight, full)
    with np.errstate(divide="ignore"):
        mask = torch.from_numpy(np.log(implied_attention(*each, H, W)))
    zeros = torch.zeros(B, P, H * W, 1, dtype=torch.float64)
    by_head = torch.from_numpy(value.reshape(B, H * W, P, D)).transpose(1, 2)
    wanted = torch.nn.functional.scaled_dot_product_attention(zeros, zeros, by_head, attn_mask=mask.expand(B, -1, -1, -1))
    got = separable_gaussian_filter(value, offset, width, weight).reshape(B, H * W, P, D)
    np.testing.assert_allclose(got, wanted.transpose(1, 2).numpy(), atol=FLOAT64, rtol=0)


def test_row_filter_uses_the_intermediate_token() -> None:
    """Token (i, k) alone is steered two rows up, sharply; every token of row i then sees that column displaced."""
    H, W, i, k = 5, 4, 3, 1
    offset, width, weight = np.zeros((1, H, W, 1, 1, 2)), np.full((1, H, W, 1, 1, 2), 1e-3), np.ones((1, H, W, 1, 1))
    width[..., 1] = 1e6  # every column equally
    offset[0, i, k, 0, 0, 0] = 2
    value = np.arange(H * W, dtype=float).reshape(1, H, W, 1, 1)
    rows = value[0, i, :, 0, 0].copy()
    rows[k] = value[0, i - 2, k, 0, 0]
    got = separable_gaussian_filter(value, offset, width, weight)[0, i, :, 0, 0]
    np.testing.assert_allclose(got, np.full(W, rows.mean()), atol=1e-9)  # σ = 1e6 is flat to (W / σ)²


def test_positive_row_offset_looks_up() -> None:
    value = np.arange(6.0).reshape(1, 6, 1, 1, 1)
    got = separable_gaussian_filter(value, *fixed_field((2, 0), (1e-3, 1e-3)))
    assert got[0, :, 0, 0, 0].tolist() == [0, 0, 0, 1, 2, 3]  # two rows up, and the border where there is none


def test_positive_column_offset_looks_left() -> None:
    value = np.arange(6.0).reshape(1, 1, 6, 1, 1)
    got = separable_gaussian_filter(value, *fixed_field((0, 2), (1e-3, 1e-3)))
    assert got[0, 0, :, 0, 0].tolist() == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize("sigma", [1e-4, 1e-30, 1e-200, 5e-324])
@pytest.mark.parametrize("mu", [0.0, 0.4, -1e9, 1e9])
def test_zero_width_takes_the_nearest_cell(sigma: float, mu: float) -> None:
    value = np.arange(5.0).reshape(1, 5, 1, 1, 1)
    got = separable_gaussian_filter(value, *fixed_field((mu, 0), (sigma, 1.0)))[0, :, 0, 0, 0]
    assert got.tolist() == np.clip(np.arange(5) - mu, 0, 4).round().tolist()


def test_atoms_are_normalised_one_by_one_and_not_as_a_joint_mixture() -> None:
    value = np.arange(5.0).reshape(1, 5, 1, 1, 1)
    offset = np.zeros((1, 1, 1, 1, 2, 2))
    width = np.ones((1, 1, 1, 1, 2, 2)) * np.array([0.3, 3.0])[:, None]
    alone = [separable_gaussian_filter(value, *fixed_field((0, 0), (s, s))) for s in (0.3, 3.0)]
    got = separable_gaussian_filter(value, offset, width, np.full((1, 1, 1, 1, 2), 0.5))
    np.testing.assert_allclose(got, (alone[0] + alone[1]) / 2, atol=1e-15)


@pytest.mark.parametrize(
    ("changed", "shape", "words"),
    [
        ("offset", (1, 1, 1, 2, 3, 3), r"offset has shape \[1, 1, 1, 2, 3, 3\] but should be \[b, h, w, P, R, 2\]"),
        ("value", (2, 4, 5, 2), r"value has shape \[2, 4, 5, 2\] but should be \[B, H, W, P, D\]"),
        ("weight", (1, 1, 1, 2, 4), r"weight has shape \[1, 1, 1, 2, 4\] .* = \[1, 1, 1, 2, 3\]"),
        ("value", (2, 4, 5, 3, 6), r"offset has shape .* = \[1, 1, 1, 3, 3, 2\]"),
        ("value", (0, 4, 5, 2, 6), r"value has shape \[0, 4, 5, 2, 6\]; no axis may be empty"),
    ],
)
def test_misfit_names_the_operand_and_the_shape_it_should_have(changed: str, shape: tuple[int, ...], words: str) -> None:
    shapes = {"value": (2, 4, 5, 2, 6), "offset": (1, 1, 1, 2, 3, 2), "width": (1, 1, 1, 2, 3, 2), "weight": (1, 1, 1, 2, 3)}
    shapes[changed] = shape
    with pytest.raises(ValueError, match=words):
        separable_gaussian_filter(*(np.ones(shape) for shape in shapes.values()))


@pytest.mark.parametrize("field", [(3, 1, 1), (1, 4, 1), (2, 1, 5), (2, 5, 4)])
def test_field_for_another_batch_or_grid_is_refused(field: tuple[int, int, int]) -> None:
    shape = (*field, 2, 3)
    with pytest.raises(ValueError, match=r"b must be 1 or B, \(h, w\) must be \(1, 1\) or \(H, W\)"):
        separable_gaussian_filter(np.ones((2, 4, 5, 2, 6)), np.ones((*shape, 2)), np.ones((*shape, 2)), np.ones(shape))


@pytest.mark.parametrize("width", [0.0, -1.0, float("nan")])
def test_width_that_is_not_positive_is_refused(width: float) -> None:
    with pytest.raises(ValueError, match="width must be positive"):
        separable_gaussian_filter(np.ones((1, 2, 2, 1, 1)), *fixed_field((0, 0), (width, 1.0)))
