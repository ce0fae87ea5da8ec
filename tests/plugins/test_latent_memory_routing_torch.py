"""The torch operator of LatentMemoryRouting against its definition, and as a citizen of PyTorch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gaussport.plugins.latent_memory_routing import tolerances
from gaussport.plugins.latent_memory_routing.definition import latent_memory_routing as definition
from gaussport.plugins.latent_memory_routing.memory_product import (
    BLOCK,
    CHUNK,
    causal_memory_product,
    memory_product,
)
from gaussport.plugins.latent_memory_routing.torch_op import latent_memory_routing

Operands = Callable[..., tuple[Tensor, ...]]


def error(operands: tuple[Tensor, ...], causal: bool) -> float:
    """Largest difference from the definition on the same (already rounded) operands, over the largest value."""
    wanted = definition(*(operand.double().numpy() for operand in operands), causal=causal)
    got = latent_memory_routing(*operands, causal=causal).double().numpy()
    return float(np.abs(got - wanted).max() / operands[2].double().abs().max())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    B=st.integers(1, 3),
    N=st.one_of(st.integers(1, 9), st.sampled_from([CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])),
    P=st.integers(1, 3),
    K=st.integers(1, 64),
    dr=st.integers(1, 17),
    dv=st.integers(1, 9),
    causal=st.booleans(),
    masked=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 99),
)
def test_equals_definition(
    routing_operands: Operands,
    B: int,
    N: int,
    P: int,
    K: int,
    dr: int,
    dv: int,
    causal: bool,
    masked: bool,
    dtype: torch.dtype,
    seed: int,
) -> None:
    operands = routing_operands(B, N, P, K, dr, dv, masked=masked, dtype=dtype, seed=seed)
    assert error(operands, causal) <= (tolerances.FLOAT64 if dtype == torch.float64 else tolerances.FLOAT32)


@pytest.mark.parametrize("N", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + CHUNK + 3])
def test_sequences_of_several_blocks(routing_operands: Operands, N: int) -> None:
    assert error(routing_operands(2, N, 1, 3, 2, 2, masked=True), True) <= tolerances.FLOAT64


def test_gradients_reach_over_blocks() -> None:
    random = torch.Generator().manual_seed(1)
    N = BLOCK + CHUNK + 3
    read, write, value, upstream = (
        torch.randn(1, N, 1, 2, generator=random, dtype=torch.float64, requires_grad=n < 3) for n in range(4)
    )
    whole = torch.einsum("bnpk,bnpd->bnpkd", write, value).cumsum(1)  # every token's memory
    expected = torch.autograd.grad((torch.einsum("bnpk,bnpkd->bnpd", read, whole) * upstream).sum(), (read, write, value))
    found = torch.autograd.grad((memory_product(read, write, value, True) * upstream).sum(), (read, write, value))
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_mixtures_as_the_modules_make_them(routing_operands: Operands, causal: bool) -> None:
    query, key, value, mean, variance, prior = routing_operands(2, 196, 2, 32, 16, 16, dtype=torch.float32)
    assert error((query, key, value, mean, torch.full_like(variance, 0.6932), prior), causal) <= tolerances.FLOAT32_AS_MADE


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 999), variance=st.floats(-3, 1), reach=st.floats(-1, 1.5), distance=st.sampled_from([0.0, 100.0]))
def test_error_is_bounded_by_the_spread_of_any_mixture(
    routing_of_any_spread: Callable[..., tuple[tuple[Tensor, ...], float]],
    seed: int,
    variance: float,
    reach: float,
    distance: float,
) -> None:
    operands, spread = routing_of_any_spread(seed, 10**variance, 10**reach, distance)
    assert error(operands, causal=seed % 2 == 0) <= tolerances.float32_of(spread)


@pytest.mark.parametrize("origin", [0.0, 1e3])
def test_mixture_far_from_the_origin_loses_no_precision(routing_operands: Operands, origin: float) -> None:
    """The expanded square cancels only within the spread of the mixture, wherever that lies."""
    query, key, value, mean, variance, prior = routing_operands(1, 9, 2, 8, 4, 3, dtype=torch.float32)
    moved = (query + origin, key + origin, value, mean + origin, variance, prior)
    assert error(moved, causal=False) <= tolerances.FLOAT32


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(routing_operands: Operands, dtype: torch.dtype, causal: bool) -> None:
    operands = routing_operands(2, 70, 2, 16, 8, 8, dtype=dtype)
    scale = 1 if dtype == torch.float16 else 8  # bfloat16 has three bits less
    assert latent_memory_routing(*operands, causal=causal).dtype == dtype
    assert error(operands, causal) <= tolerances.FLOAT16 * scale


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("N", [4, CHUNK + 2])
def test_gradients_and_their_gradients_are_right(routing_operands: Operands, N: int, masked: bool, causal: bool) -> None:
    leaves = tuple(operand.requires_grad_() for operand in routing_operands(1, N, 2, 3, 2, 2, masked=masked))

    def routed(*operands: Tensor) -> Tensor:
        # A first token that is masked leaves the memory empty: with ε = 1e-6 finite differences see only the division.
        return torch.as_tensor(latent_memory_routing(*operands, epsilon=0.1, causal=causal))

    assert torch.autograd.gradcheck(routed, leaves, fast_mode=N > CHUNK)
    assert torch.autograd.gradgradcheck(routed, leaves, fast_mode=True)


@pytest.mark.parametrize(("masked", "causal"), [(False, False), (True, True)])
def test_opcheck(routing_operands: Operands, masked: bool, causal: bool) -> None:
    leaves = tuple(operand.requires_grad_() for operand in routing_operands(2, 5, 2, 3, 2, 2, masked=masked))
    torch.library.opcheck(latent_memory_routing, leaves, {"causal": causal})


def test_compiles_without_a_graph_break_and_with_dynamic_shapes(routing_operands: Operands) -> None:
    compiled = torch.compile(
        lambda *x: latent_memory_routing(*x, causal=True) * 2, fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for N in (5, 70):
        operands = tuple(operand.requires_grad_() for operand in routing_operands(2, N, 2, 3, 2, 2))
        torch.testing.assert_close(compiled(*operands), latent_memory_routing(*operands, causal=True) * 2)


@pytest.mark.parametrize(
    "in_dims", [(0, 0, 0, None, None, None), (0, None, 0, None, None, None), (None, None, None, 0, 0, 0), (0, 0, 0, 0, 0, 0)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_vmap_is_a_loop(routing_operands: Operands, causal: bool, in_dims: tuple[int | None, ...]) -> None:
    models = [routing_operands(2, 5, 2, 3, 4, 3, seed=seed) for seed in range(3)]
    stacked = [
        models[0][n] if axis is None else torch.stack([model[n] for model in models], axis) for n, axis in enumerate(in_dims)
    ]
    got = torch.vmap(lambda *x: latent_memory_routing(*x, causal=causal), in_dims=in_dims)(*stacked)
    for index, model in enumerate(models):
        alone = [models[0][n] if axis is None else model[n] for n, axis in enumerate(in_dims)]
        torch.testing.assert_close(got[index], latent_memory_routing(*alone, causal=causal))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("position", "change", "words"),
    [
        (1, lambda x: x[:, 1:], r"key has shape \[2, 4, 2, 3\] but should be \[B, N, P, dr\] = \[2, 5, 2, 3\]"),
        (3, lambda x: x[0], r"mean has shape \[7, 3\] but should be \[P, K, dr\]"),
        (4, lambda x: x.double(), r"variance is torch.float64 but query is torch.float32: convert them to one dtype"),
        (0, lambda x: x[:, :0], r"query has shape \[2, 0, 2, 3\]; no axis may be empty"),
        (6, lambda x: x[..., None], r"key_mask has shape \[2, 5, 1\] but should be \[B, N\]"),
    ],
)
def test_misfit_is_refused_in_eager_and_under_tracing(
    routing_operands: Operands, device: str, position: int, change: Callable[[Tensor], Tensor], words: str
) -> None:
    operands = [operand.to(device) for operand in routing_operands(2, 5, 2, 7, 3, 4, masked=True, dtype=torch.float32)]
    operands[position] = change(operands[position])
    with pytest.raises(ValueError, match=words):
        latent_memory_routing(*operands)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_variance_that_is_not_positive_is_refused(routing_operands: Operands, bad: float) -> None:
    operands = routing_operands(1, 2, 1, 2, 3, 2)
    operands[4][0, 1, 2] = bad
    with pytest.raises(ValueError, match="variance must be positive"):
        latent_memory_routing(*operands)


@pytest.mark.parametrize("tokens", [1, CHUNK, CHUNK + 1])
def test_the_product_that_a_tracer_sees_keeps_the_rules_of_an_operator(tokens: int) -> None:
    read, write, value = (torch.rand(2, tokens, 3, width) for width in (4, 4, 5))
    torch.library.opcheck(causal_memory_product, (read, write, value), test_utils=("test_schema", "test_faketensor"))
    torch.testing.assert_close(causal_memory_product(read, write, value), memory_product(read, write, value, causal=True))
