"""Operands of both operators, at random, for every test of a backend."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

FilterOperands = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]
RoutingOperands = Callable[..., tuple[Tensor, ...]]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # two threads are slow when another job shares the cores


@pytest.fixture
def filter_operands() -> FilterOperands:
    """`(B, H, W, P, D, R, steered=, batched=, dtype=, sigma=, reach=, seed=)` → value, offset, width, weight."""

    def make(
        B: int, H: int, W: int, P: int, D: int, R: int, *, steered: bool = True, batched: bool = True,
        dtype: torch.dtype = torch.float64, sigma: float = 1.0, reach: float = 2.0, seed: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        draw = torch.Generator().manual_seed(seed)
        field = (B if batched else 1, H if steered else 1, W if steered else 1, P, R)
        value = torch.randn(B, H, W, P, D, generator=draw, dtype=torch.float64)
        offset = torch.randn(*field, 2, generator=draw, dtype=torch.float64) * reach
        width = sigma * (torch.rand(*field, 2, generator=draw, dtype=torch.float64) + 0.5)
        weight = torch.softmax(torch.randn(*field, generator=draw, dtype=torch.float64), -1)
        return value.to(dtype), offset.to(dtype), width.to(dtype), weight.to(dtype)

    return make


@pytest.fixture
def routing_operands() -> RoutingOperands:
    """`(B, N, P, K, dr, dv, masked=, dtype=, seed=)` → query, key, value, mean, variance, log_prior[, key_mask]."""

    def make(
        B: int, N: int, P: int, K: int, dr: int, dv: int, *, masked: bool = False,
        dtype: torch.dtype = torch.float64, seed: int = 0,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        draw = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64)

        variance = torch.rand(P, K, dr, generator=draw, dtype=torch.float64) + 0.1
        prior = torch.log_softmax(normal(P, K), -1)
        operands = (normal(B, N, P, dr), normal(B, N, P, dr), normal(B, N, P, dv), normal(P, K, dr), variance, prior)
        mask = ((torch.rand(B, N, generator=draw, dtype=torch.float64) > 0.4).to(dtype),) if masked else ()
        return (*(operand.to(dtype) for operand in operands), *mask)

    return make


@pytest.fixture
def routing_of_any_spread() -> Callable[[int, float, float, float], tuple[tuple[Tensor, ...], float]]:
    """`(seed, variance, reach, distance)` → float32 operands of a mixture and its spread, as `tolerances.float32_of` says.

    Tokens and means lie `reach` apart, all `distance` from the origin.
    """

    def make(seed: int, variance: float, reach: float, distance: float) -> tuple[tuple[Tensor, ...], float]:
        draw = torch.Generator().manual_seed(seed)
        N, P, K, dr, dv = (int(torch.randint(1, most + 1, (), generator=draw)) for most in (70, 2, 40, 20, 3))
        query, key = (torch.randn(1, N, P, dr, generator=draw) * reach + distance for _ in range(2))
        mean = torch.randn(P, K, dr, generator=draw) * reach + distance
        variances = variance * (torch.rand(P, K, dr, generator=draw) + 0.5)
        prior = torch.log_softmax(torch.randn(P, K, generator=draw), -1)
        centre = mean.double().mean(1)
        tokens = (torch.cat([query, key], 1) - centre).abs()[:, :, :, None]
        terms = (tokens + (mean - centre[:, None]).abs()).square() / (2 * variances.double())
        operands = (query, key, torch.randn(1, N, P, dv, generator=draw), mean, variances, prior)
        return operands, terms.sum(-1).max().item()

    return make
