"""The routing kernels, interpreted, against the float64 definition."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from gaussport.plugins.latent_memory_routing.definition import latent_memory_routing as definition
from gaussport.plugins.latent_memory_routing.definition import responsibilities
from gaussport.plugins.latent_memory_routing.triton_launch import run, run_plan

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Largest error over the largest value of the definition. float32: exponents of scores, whose expanded square cancels;
float16 and bfloat16: the result rounded at 5e-4 and 4e-3, and what the interpreter does not show: TF32 products at 5e-4."""

DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
ORDERS = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
SPLITS = pytest.mark.parametrize("split_tokens", [None, 64], ids=["whole", "split"])


class Shape(NamedTuple):
    B: int
    N: int
    P: int
    K: int
    dr: int
    dv: int

    def __str__(self) -> str:
        return "_".join(f"{name}{size}" for name, size in self._asdict().items())


class Operands(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor
    mean: Tensor
    variance: Tensor
    log_prior: Tensor


SHAPES = [
    Shape(1, 196, 2, 32, 16, 64),  # a d256 classifier's tokens
    Shape(2, 70, 2, 8, 12, 20),
    Shape(2, 33, 3, 3, 5, 70),
    Shape(1, 130, 1, 64, 32, 9),
    Shape(1, 130, 1, 70, 20, 40),
    Shape(3, 1, 2, 1, 1, 1),
]


def draw(shape: Shape, dtype: torch.dtype, spread: float = 1.0, narrowest: float = 0.5) -> Operands:
    g = torch.Generator().manual_seed(hash(shape) % 2**31)
    B, N, P, K, dr, dv = shape
    operands = (
        torch.randn(B, N, P, dr, generator=g),
        torch.randn(B, N, P, dr, generator=g),
        torch.randn(B, N, P, dv, generator=g),
        spread * torch.randn(P, K, dr, generator=g),
        softplus(torch.randn(P, K, dr, generator=g)) + narrowest,
        torch.log_softmax(torch.randn(P, K, generator=g), dim=-1),
    )
    return Operands(*(operand.to(dtype) for operand in operands))


def a_mask(shape: Shape) -> Tensor:
    """About a third of the keys out, the first one in."""
    mask = torch.rand(shape.B, shape.N, generator=torch.Generator().manual_seed(1)) > 0.3
    mask[:, 0] = True
    return mask


def defined(
    operands: Operands, key_mask: Tensor | None = None, epsilon: float = 1e-6, causal: bool = False
) -> NDArray[np.float64]:
    mask = None if key_mask is None else key_mask.double().numpy()
    query, key, value, mean, variance, log_prior = (operand.double().numpy() for operand in operands)
    return definition(query, key, value, mean, variance, log_prior, mask, epsilon=epsilon, causal=causal)


def assert_close(output: Tensor, wanted: NDArray[np.float64], tolerance: float | None = None) -> None:
    limit = TOLERANCE[output.dtype] if tolerance is None else tolerance
    error = np.abs(output.double().numpy() - wanted).max() / np.abs(wanted).max()
    assert error <= limit, f"off by {error:.2e} of the largest value"


@DTYPES
@SPLITS
@ORDERS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_equal_the_definition(shape: Shape, causal: bool, split_tokens: int | None, dtype: torch.dtype) -> None:
    operands = draw(shape, dtype)
    output = run_plan(*operands, causal=causal, split_tokens=split_tokens)
    assert_close(output, defined(operands, causal=causal))


@st.composite
def shapes(draw_from: st.DrawFn) -> Shape:
    sizes = {"B": 2, "N": 80, "P": 2, "K": 20, "dr": 20, "dv": 40}
    return Shape(*(draw_from(st.integers(1, most)) for most in sizes.values()))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(shapes(), st.booleans(), st.booleans(), st.sampled_from([None, 16, 64]))
def test_kernels_equal_the_definition_on_any_shape(
    shape: Shape, causal: bool, masked: bool, split_tokens: int | None
) -> None:
    operands, mask = draw(shape, torch.float32), a_mask(shape) if masked else None
    output = run_plan(*operands, mask, causal=causal, split_tokens=split_tokens)
    assert_close(output, defined(operands, mask, causal=causal))


@ORDERS
@SPLITS
def test_key_mask_keeps_tokens_out_of_the_memory(causal: bool, split_tokens: int | None) -> None:
    shape = Shape(2, 70, 1, 5, 6, 7)
    operands, mask = draw(shape, torch.float32), a_mask(shape)
    output = run_plan(*operands, mask, causal=causal, split_tokens=split_tokens)
    assert_close(output, defined(operands, mask, causal=causal))
    loud = operands._replace(value=torch.where(mask[:, :, None, None], operands.value, 1e6))
    assert torch.equal(output, run_plan(*loud, mask, causal=causal, split_tokens=split_tokens))


@SPLITS
def test_rows_sum_to_d_over_d_plus_epsilon(split_tokens: int | None) -> None:
    """A constant value comes out as d / (d + ε) times itself: with a large ε, far below itself."""
    operands = draw(Shape(1, 70, 1, 4, 3, 5), torch.float32, spread=4.0)
    operands.value.fill_(2.0)
    epsilon = 20.0
    output = run_plan(*operands, epsilon=epsilon, split_tokens=split_tokens)
    mixture = [operand.double().numpy() for operand in operands[3:]]
    read, write = (responsibilities(x.double().numpy(), *mixture) for x in (operands.query, operands.key))
    d = np.einsum("bnpk,bpk->bnp", read, write.sum(1))
    assert d.min() < epsilon < d.max()
    np.testing.assert_allclose(output.double().numpy(), (2 * d / (d + epsilon))[..., None].repeat(5, -1), atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_tiny_responsibilities_survive_half_precision(dtype: torch.dtype) -> None:
    """Readers of one component, writers of another: d is 1e-9, below float16's smallest number, and still divides well."""
    tokens = torch.zeros(1, 20, 1, 1, dtype=dtype)
    value = torch.randn(1, 20, 1, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    mean = torch.tensor([[[0.0], [6.5]]], dtype=dtype)
    ones, prior = torch.ones_like(mean), torch.full((1, 2), -0.6931, dtype=dtype)
    operands = Operands(tokens, tokens + 6.5, value, mean, ones, prior)
    assert_close(run_plan(*operands, epsilon=1e-12), defined(operands, epsilon=1e-12))


def test_narrow_components_cost_digits_as_stated() -> None:
    """Scores of hundreds of bits round at 1e-5; the operator's tolerance says so (spreads² / variance)."""
    operands = draw(Shape(1, 130, 1, 64, 64, 9), torch.float32, narrowest=0.1)
    assert_close(run(*operands), defined(operands), tolerance=5e-5)


@SPLITS
def test_one_component_gives_the_mean(split_tokens: int | None) -> None:
    operands = draw(Shape(1, 70, 2, 1, 4, 6), torch.float32)
    output = run_plan(*operands, split_tokens=split_tokens)
    torch.testing.assert_close(output, operands.value.mean(1, keepdim=True).expand_as(output), atol=1e-6, rtol=1e-5)


@SPLITS
def test_last_row_of_causal_equals_last_row_of_bidirectional(split_tokens: int | None) -> None:
    operands = draw(Shape(2, 70, 2, 8, 6, 10), torch.float32)
    causal, both = (run_plan(*operands, causal=order, split_tokens=split_tokens) for order in (True, False))
    torch.testing.assert_close(causal[:, -1], both[:, -1], atol=2e-6, rtol=1e-5)


def test_causal_tokens_do_not_see_later_ones() -> None:
    operands = draw(Shape(1, 70, 1, 8, 6, 10), torch.float32)
    before = run_plan(*operands, causal=True, split_tokens=32)
    operands.value[:, 40:] = 1e3
    operands.key[:, 40:] *= -1
    assert torch.equal(before[:, :40], run_plan(*operands, causal=True, split_tokens=32)[:, :40])


@ORDERS
def test_equal_inputs_give_equal_bits(causal: bool) -> None:
    operands = draw(Shape(1, 130, 2, 8, 6, 10), torch.float32)
    first, second = (run_plan(*operands, causal=causal, split_tokens=64) for _ in range(2))
    assert torch.equal(first, second)


def test_means_far_from_the_origin_cancel_nothing() -> None:
    """The shift by the mean of means: the same mixture a thousand units away has the same responsibilities."""
    operands = draw(Shape(1, 33, 1, 6, 4, 5), torch.float32)
    rounded = [torch.round(x * 1024) / 1024 for x in (operands.query, operands.key, operands.mean)]  # exact when shifted
    near = Operands(rounded[0], rounded[1], operands.value, rounded[2], operands.variance, operands.log_prior)
    far = near._replace(query=near.query + 1024, key=near.key + 1024, mean=near.mean + 1024)
    assert_close(run(*far), defined(near))


def test_a_mixture_too_large_for_a_chip_is_refused_in_words() -> None:
    operands = draw(Shape(1, 4, 1, 300, 16, 4), torch.float32)
    with pytest.raises(ValueError, match=r"K = 300 components of dr = 16 are more than the GPU kernels hold on chip"):
        run(*operands)
