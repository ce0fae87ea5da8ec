"""The filter's kernels, interpreted, against the float64 definition."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from gaussport.plugins.separable_gaussian_filter.definition import separable_gaussian_filter as definition
from gaussport.plugins.separable_gaussian_filter.triton_launch import FilterSizes, plan, run, run_plan

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Largest error over the largest value of the definition. float32: sums of weights rounded at 6e-8 and exponents likewise;
float16: operands, weights, row pass and result rounded at 5e-4; bfloat16: the result rounded at 4e-3."""

DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
FORMS = pytest.mark.parametrize("fused", [True, False], ids=["fused", "two_passes"])


class Field(NamedTuple):
    offset: Tensor
    width: Tensor
    weight: Tensor


class Shape(NamedTuple):
    B: int
    H: int
    W: int
    P: int
    R: int
    D: int
    field: tuple[int, int, int]

    def __str__(self) -> str:
        return f"B{self.B}_{self.H}x{self.W}_P{self.P}_R{self.R}_D{self.D}_field{'x'.join(map(str, self.field))}"


SHAPES = [
    Shape(2, 14, 14, 2, 4, 64, (2, 14, 14)),  # a published grid
    Shape(2, 7, 7, 4, 4, 16, (2, 7, 7)),  # the zoo's digits
    Shape(2, 5, 9, 2, 3, 10, (1, 1, 1)),  # fixed
    Shape(2, 5, 9, 1, 8, 10, (1, 5, 9)),  # one steered field for all images
    Shape(2, 9, 5, 3, 1, 7, (2, 1, 1)),  # one fixed field per image
    Shape(1, 1, 20, 1, 2, 3, (1, 1, 20)),
    Shape(1, 20, 1, 1, 2, 33, (1, 20, 1)),
    Shape(3, 1, 1, 2, 5, 8, (3, 1, 1)),
    Shape(1, 18, 31, 1, 2, 16, (1, 18, 31)),
]


def draw(shape: Shape, dtype: torch.dtype, mu: float = 2.0, sigma: float = 1.5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(hash(shape) % 2**31)
    B, H, W, P, R, D, field = shape
    value = torch.randn(B, H, W, P, D, generator=g)
    offset = mu * torch.randn(*field, P, R, 2, generator=g)
    width = sigma * torch.exp(torch.randn(*field, P, R, 2, generator=g))
    weight = torch.softmax(torch.randn(*field, P, R, generator=g), dim=-1)
    return value.to(dtype), offset.to(dtype), width.to(dtype), weight.to(dtype)


def defined(*operands: Tensor) -> NDArray[np.float64]:
    value, offset, width, weight = (operand.double().numpy() for operand in operands)
    return definition(value, offset, width, weight)


def assert_close(output: Tensor, wanted: NDArray[np.float64]) -> None:
    error = np.abs(output.double().numpy() - wanted).max() / np.abs(wanted).max()
    assert error <= TOLERANCE[output.dtype], f"off by {error:.2e} of the largest value"


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fused_kernel_equals_the_definition(shape: Shape, dtype: torch.dtype) -> None:
    operands = draw(shape, dtype)
    assert_close(run_plan(*operands, fused=True), defined(*operands))


TWO_PASS_CASES = [
    *((shape, torch.float32) for shape in SHAPES[2:7]),
    *((Shape(1, 35, 3, 1, 2, 70, (1, 35, 3)), dtype) for dtype in TOLERANCE),  # two tiles of rows and of channels
]


@pytest.mark.parametrize(("shape", "dtype"), TWO_PASS_CASES, ids=str)
def test_two_passes_equal_the_definition(shape: Shape, dtype: torch.dtype) -> None:
    operands = draw(shape, dtype)
    assert_close(run_plan(*operands, fused=False), defined(*operands))


@st.composite
def cases(draw_from: st.DrawFn) -> tuple[Shape, float, float]:
    size, few = st.integers(1, 12), st.integers(1, 2)
    B, H, W, P = draw_from(few), draw_from(size), draw_from(size), draw_from(few)
    b, grid = draw_from(st.sampled_from([1, B])), draw_from(st.sampled_from([(1, 1), (H, W)]))
    shape = Shape(B, H, W, P, draw_from(st.integers(1, 8)), draw_from(st.integers(1, 20)), (b, *grid))
    return shape, draw_from(st.sampled_from([0.0, 1.0, 30.0, 1e6])), draw_from(st.sampled_from([1e-4, 0.3, 3.0, 1e4]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases())
def test_fused_kernel_equals_the_definition_on_any_shape_and_steering(case: tuple[Shape, float, float]) -> None:
    shape, mu, sigma = case
    operands = draw(shape, torch.float32, mu, sigma)
    assert_close(run_plan(*operands, fused=True), defined(*operands))


@settings(max_examples=6, deadline=None, derandomize=True)
@given(cases())
def test_two_passes_equal_the_definition_on_any_shape_and_steering(case: tuple[Shape, float, float]) -> None:
    shape, mu, sigma = case
    operands = draw(shape._replace(R=min(shape.R, 2)), torch.float32, mu, sigma)
    assert_close(run_plan(*operands, fused=False), defined(*operands))


def steered(H: int, W: int, mu: tuple[float, float], sigma: float) -> Field:
    """One atom, one head, the same steering at every token."""
    offset = torch.tensor(mu).expand(1, H, W, 1, 1, 2).contiguous()
    return Field(offset, torch.full((1, H, W, 1, 1, 2), sigma), torch.ones(1, H, W, 1, 1))


@FORMS
def test_row_filter_uses_the_intermediate_token(fused: bool) -> None:
    """Only the tokens of column 2 look one row up; the queries, in other columns, fetch what column 2 fetched."""
    value = torch.randn(1, 6, 5, 1, 4, generator=torch.Generator().manual_seed(0))
    field = steered(6, 5, (0.0, 0.0), 1e-4)
    field.offset[:, :, 2, :, :, 0] = 1.0  # intermediate tokens (i, 2): row i − 1
    field.offset[:, :, 3, :, :, 1] = 1.0  # queries (i, 3): column 2
    output = run_plan(value, *field, fused=fused)
    assert torch.equal(output[0, 1:, 3], value[0, :-1, 2])


@FORMS
def test_positive_offset_looks_up_and_left(fused: bool) -> None:
    value = torch.randn(1, 6, 5, 1, 4, generator=torch.Generator().manual_seed(0))
    output = run_plan(value, *steered(6, 5, (2.0, 1.0), 1e-4), fused=fused)
    assert torch.equal(output[0, 2:, 1:], value[0, :-2, :-1])


@FORMS
@DTYPES
def test_zero_width_takes_the_nearest_cell(fused: bool, dtype: torch.dtype) -> None:
    value = torch.randn(1, 5, 6, 1, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    field = steered(5, 6, (0.25, -0.25), 1e-30)
    field = Field(*(operand.to(dtype) for operand in field)) if dtype != torch.float16 else field
    if dtype == torch.float16:  # its smallest number is 6e-8
        field = Field(*(operand.to(dtype) for operand in steered(5, 6, (0.25, -0.25), 1e-7)))
    assert torch.equal(run_plan(value, *field, fused=fused), value)


@FORMS
@pytest.mark.parametrize("mu", [1e3, 1e6, -1e6])
def test_atom_far_off_the_grid_takes_the_border(fused: bool, mu: float) -> None:
    value = torch.randn(1, 6, 7, 1, 4, generator=torch.Generator().manual_seed(0))
    operands = (value, *steered(6, 7, (mu, mu), 3.0))
    output = run_plan(*operands, fused=fused)
    assert_close(output, defined(*operands))
    assert torch.isfinite(output).all()


@FORMS
def test_constant_value_comes_out_unchanged(fused: bool) -> None:
    shape = Shape(1, 9, 11, 2, 4, 5, (1, 9, 11))
    _, *field = draw(shape, torch.float32)
    output = run_plan(torch.full((1, 9, 11, 2, 5), 3.0), *field, fused=fused)
    torch.testing.assert_close(output, torch.full_like(output, 3.0), rtol=1e-6, atol=0)


@FORMS
def test_equal_inputs_give_equal_bits(fused: bool) -> None:
    operands = draw(Shape(1, 6, 7, 2, 2, 10, (1, 6, 7)), torch.float32)
    assert torch.equal(run_plan(*operands, fused=fused), run_plan(*operands, fused=fused))


def test_fixed_field_is_read_from_one_token() -> None:
    """A plan for b = h = w = 1 steps no field pointer, and its kernels are told so when they are compiled."""
    sizes = FilterSizes(H=14, W=14, P=4, R=4, D=64, fixed=True, shared=True)
    for launch in (*plan(sizes, "fp16").launches, *plan(sizes, "fp16", fused=False).launches):
        assert launch.arguments["field_batch"] == 0
        assert launch.constants["FIXED"] is True


def test_operands_in_any_memory_order() -> None:
    operands = draw(SHAPES[1], torch.float32)
    strided = tuple(operand.transpose(0, 1).contiguous().transpose(0, 1) for operand in operands)
    assert_close(run(*strided), defined(*operands))


WINDOW_BOUND = 2.0**-21
"""Of Σ|λ|·max|value|; docs/kernels.md has the proof."""


@pytest.mark.parametrize(("sigma", "mu"), [(1.0, 7.3), (4.0, 0.0), (2.0, -90.0)])
def test_window_leaves_out_less_than_its_bound(sigma: float, mu: float) -> None:
    """On a grid of several tiles, in float64's eyes: the windowed output is as near the definition as the whole one."""
    value = torch.randn(1, 80, 1, 1, 4, generator=torch.Generator().manual_seed(0)).sign()
    operands = (value, *steered(80, 1, (mu, 0.0), sigma))
    windowed, whole = run_plan(*operands, fused=False), run_plan(*operands, fused=False, window=False)
    rounding = 4e-7
    assert (windowed - whole).abs().max() <= WINDOW_BOUND + rounding
    assert_close(windowed, defined(*operands))


def test_window_skips_tiles() -> None:
    """A NaN outside every window is never touched: its tile was skipped, not multiplied by zero."""
    value = torch.ones(1, 96, 1, 1, 4)
    value[:, 80:] = float("nan")
    field = steered(96, 1, (0.0, 0.0), 0.5)
    field.offset[:, 64:, ..., 0] = 64.0  # the second tile of rows looks at the first
    assert torch.isfinite(run_plan(value, *field, fused=False)).all()
    assert torch.isnan(run_plan(value, *field, fused=False, window=False)).all()


def test_float64_is_refused_in_words() -> None:
    operands = draw(SHAPES[2], torch.float64)
    with pytest.raises(ValueError, match=r"take float32, float16 or bfloat16, not torch\.float64"):
        run(*operands)


@FORMS
@pytest.mark.parametrize("mu", [0.49999997, -0.49999997, 3.4999998, 0.5000001], ids=str)
def test_the_nearest_cell_is_right_far_along_an_axis(mu: float, fused: bool) -> None:
    """In float32 200 − 0.49999997 is 199.5: the nearest cell may not be read off that difference."""
    cells = 32 if fused else 256
    value = torch.arange(float(cells)).view(1, 1, cells, 1, 1)
    field = torch.tensor([0.0, mu]).view(1, 1, 1, 1, 1, 2)
    operands = (value, field, torch.full_like(field, 1e-4), torch.ones(1, 1, 1, 1, 1))
    assert_close(run_plan(*operands, fused=fused), defined(*operands))
