"""The torch operator of SeparableGaussianFilter against its definition, and as a citizen of PyTorch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gaussport.plugins.separable_gaussian_filter import tolerances, torch_op
from gaussport.plugins.separable_gaussian_filter.definition import separable_gaussian_filter as definition
from gaussport.plugins.separable_gaussian_filter.torch_op import separable_gaussian_filter

Operands = Callable[..., tuple[Tensor, ...]]
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]  # (steered, batched)


def error(operands: tuple[Tensor, ...]) -> float:
    """Largest difference from the definition, on the same (already rounded) operands."""
    wanted = definition(*(operand.double().numpy() for operand in operands))
    return float(np.abs(separable_gaussian_filter(*operands).double().numpy() - wanted).max())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    B=st.integers(1, 3),
    H=st.integers(1, 9),
    W=st.integers(1, 9),
    P=st.integers(1, 3),
    D=st.integers(1, 9),
    R=st.integers(1, 8),
    layout=st.sampled_from(LAYOUTS),
    exponent=st.floats(-4, 4),
    reach=st.sampled_from([0.0, 2.0, 1e3]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 99),
)
def test_equals_definition(
    filter_operands: Operands,
    B: int,
    H: int,
    W: int,
    P: int,
    D: int,
    R: int,
    layout: tuple[bool, bool],
    exponent: float,
    reach: float,
    dtype: torch.dtype,
    seed: int,
) -> None:
    steered, batched = layout
    operands = filter_operands(
        B, H, W, P, D, R, steered=steered, batched=batched, dtype=dtype, sigma=10**exponent, reach=reach, seed=seed
    )
    assert error(operands) <= (tolerances.FLOAT64 if dtype == torch.float64 else tolerances.FLOAT32)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, tolerances.FLOAT16), (torch.bfloat16, tolerances.BFLOAT16)]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_precision_is_computed_in_float32(
    filter_operands: Operands, layout: tuple[bool, bool], dtype: torch.dtype, tolerance: float
) -> None:
    operands = filter_operands(2, 14, 14, 2, 16, 4, steered=layout[0], batched=layout[1], dtype=dtype)
    assert separable_gaussian_filter(*operands).dtype == dtype
    assert error(operands) <= tolerance * 3  # the largest of 12,544 values of order three


@pytest.mark.parametrize("sigma", [1e-4, 1e-20, 1e-38])
def test_zero_width_in_float32_takes_the_nearest_cell(sigma: float) -> None:
    value = torch.arange(5.0).view(1, 5, 1, 1, 1)
    field = torch.tensor([0.4, 0.0]).view(1, 1, 1, 1, 1, 2)
    output = separable_gaussian_filter(value, field, torch.full_like(field, sigma), torch.ones(1, 1, 1, 1, 1))
    assert output.flatten().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_and_their_gradients_are_right(filter_operands: Operands, layout: tuple[bool, bool]) -> None:
    operands = filter_operands(2, 3, 4, 2, 2, 2, steered=layout[0], batched=layout[1])
    leaves = tuple(operand.requires_grad_() for operand in operands)
    assert torch.autograd.gradcheck(separable_gaussian_filter, leaves)
    assert torch.autograd.gradgradcheck(separable_gaussian_filter, leaves, fast_mode=True)


@pytest.mark.parametrize("sigma", [1e-20, 1e-4, 1e4])
def test_gradients_stay_finite_at_extreme_widths(filter_operands: Operands, sigma: float) -> None:
    operands = filter_operands(1, 5, 6, 2, 3, 3, dtype=torch.float32, sigma=sigma, reach=50.0)
    leaves = tuple(operand.requires_grad_() for operand in operands)
    separable_gaussian_filter(*leaves).square().sum().backward()
    assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in leaves)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck(filter_operands: Operands, layout: tuple[bool, bool]) -> None:
    operands = filter_operands(2, 3, 4, 2, 2, 2, steered=layout[0], batched=layout[1], dtype=torch.float32)
    torch.library.opcheck(separable_gaussian_filter, tuple(operand.requires_grad_() for operand in operands))


def test_compiles_without_a_graph_break_and_with_dynamic_shapes(filter_operands: Operands) -> None:
    compiled = torch.compile(lambda *x: separable_gaussian_filter(*x) * 2, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((2, 5, 6, 2, 3, 2), (3, 4, 7, 2, 3, 2)):
        operands = tuple(operand.requires_grad_() for operand in filter_operands(*shape))
        torch.testing.assert_close(compiled(*operands), separable_gaussian_filter(*operands) * 2)


@pytest.mark.parametrize("in_dims", [(0, None, None, None), (0, 0, 0, 0), (None, 0, None, 0), (0, None, 1, None)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_vmap_is_a_loop(filter_operands: Operands, layout: tuple[bool, bool], in_dims: tuple[int | None, ...]) -> None:
    models = [filter_operands(2, 3, 4, 2, 3, 2, steered=layout[0], batched=layout[1], seed=seed) for seed in range(3)]
    stacked = [
        models[0][n] if axis is None else torch.stack([model[n] for model in models], axis) for n, axis in enumerate(in_dims)
    ]
    got = torch.vmap(separable_gaussian_filter, in_dims=in_dims)(*stacked)
    for index, model in enumerate(models):
        alone = [models[0][n] if axis is None else model[n] for n, axis in enumerate(in_dims)]
        torch.testing.assert_close(got[index], separable_gaussian_filter(*alone))


def test_saves_only_its_operands_for_backward(filter_operands: Operands) -> None:
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    operands = tuple(operand.requires_grad_() for operand in filter_operands(2, 6, 7, 2, 8, 4))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        separable_gaussian_filter(*operands)
    assert sorted(tensor.numel() for tensor in saved) == sorted(operand.numel() for operand in operands)


@pytest.mark.parametrize("most_weights", [1, 200])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_few_images_heads_and_rows_at_a_time_give_the_whole(
    filter_operands: Operands, monkeypatch: pytest.MonkeyPatch, layout: tuple[bool, bool], most_weights: int
) -> None:
    operands = tuple(x.requires_grad_() for x in filter_operands(3, 3, 4, 5, 2, 2, steered=layout[0], batched=layout[1]))
    whole = separable_gaussian_filter(*operands)
    wanted = torch.autograd.grad(whole.square().sum(), operands)
    monkeypatch.setattr(torch_op, "MOST_WEIGHTS", most_weights)
    parts = separable_gaussian_filter(*operands)
    torch.testing.assert_close(parts, whole)
    for got, gradient in zip(torch.autograd.grad(parts.square().sum(), operands), wanted, strict=True):
        torch.testing.assert_close(got, gradient)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("position", "change", "words"),
    [
        (1, lambda x: x[..., 0], r"offset has shape \[2, 3, 4, 2, 2\] but should be \[b, h, w, P, R, 2\]"),
        (3, lambda x: x[:, :2], r"weight has shape \[2, 2, 4, 2, 2\] .* = \[2, 3, 4, 2, 2\]"),
        (2, lambda x: x.double(), r"width is torch.float64 but value is torch.float32: convert them to one dtype"),
        (0, lambda x: x.long(), r"value is torch.int64; use float16"),
        (0, lambda x: x[:0], r"value has shape \[0, 3, 4, 2, 2\]; no axis may be empty"),
    ],
)
def test_misfit_is_refused_in_eager_and_under_tracing(
    filter_operands: Operands, device: str, position: int, change: Callable[[Tensor], Tensor], words: str
) -> None:
    operands = [operand.to(device) for operand in filter_operands(2, 3, 4, 2, 2, 2, dtype=torch.float32)]
    operands[position] = change(operands[position])
    with pytest.raises(ValueError, match=words):
        separable_gaussian_filter(*operands)


def test_operands_on_two_devices_are_refused(filter_operands: Operands) -> None:
    value, offset, width, weight = filter_operands(1, 2, 2, 1, 1, 1)
    with pytest.raises(ValueError, match="offset is on meta but value is on cpu"):
        separable_gaussian_filter(value, offset.to("meta"), width, weight)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_width_that_is_not_positive_is_refused(filter_operands: Operands, bad: float) -> None:
    value, offset, width, weight = filter_operands(1, 2, 2, 1, 1, 1)
    width[0, 1, 1, 0, 0, 1] = bad
    with pytest.raises(ValueError, match="width must be positive"):
        separable_gaussian_filter(value, offset, width, weight)
