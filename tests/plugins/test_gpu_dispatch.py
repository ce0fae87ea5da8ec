"""Which way a CUDA tensor takes. No GPU is needed: the CUDA kernels are called with CPU tensors, the launches replaced."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest
import torch
from torch import Tensor

from gaussport.plugins import torch_operands

Operands = Callable[..., tuple[Tensor, ...]]


def modules(folder: str) -> tuple[ModuleType, ModuleType]:
    package = f"gaussport.plugins.{folder}"
    return import_module(f"{package}.torch_op"), import_module(f"{package}.triton_launch")


@pytest.fixture(params=["separable_gaussian_filter", "latent_memory_routing"])
def folder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def operands(folder: str, filter_operands: Operands, routing_operands: Operands) -> tuple[Tensor, ...]:
    filters = folder == "separable_gaussian_filter"
    return filter_operands(2, 4, 5, 2, 3, 2) if filters else routing_operands(2, 7, 2, 3, 4, 5)


@pytest.fixture
def launched(folder: str, monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """Dtype of the value of each launch, instead of the launch."""
    calls: list[torch.dtype] = []
    _, launch = modules(folder)
    value = 0 if folder == "separable_gaussian_filter" else 2

    def run(*given: Tensor) -> Tensor:
        calls.append(given[value].dtype)
        return torch.empty_like(given[value])

    monkeypatch.setattr(launch, "run", run)
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_triton_serves_the_types_it_takes(
    folder: str, operands: tuple[Tensor, ...], launched: list[torch.dtype], dtype: torch.dtype
) -> None:
    modules(folder)[0].on_gpu(*(x.to(dtype) for x in operands))
    assert launched == [dtype]


def test_float64_is_computed_by_torch(folder: str, operands: tuple[Tensor, ...], launched: list[torch.dtype]) -> None:
    operator, _ = modules(folder)
    torch.testing.assert_close(operator.on_gpu(*operands), getattr(operator, folder)(*operands))
    assert launched == []


def test_without_triton_torch_computes(
    folder: str, operands: tuple[Tensor, ...], launched: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, _ = modules(folder)
    monkeypatch.setattr(operator, "has_triton", lambda: False)
    singles = [x.float() for x in operands]
    torch.testing.assert_close(operator.on_gpu(*singles), getattr(operator, folder)(*singles))
    assert launched == []


@pytest.mark.parametrize(
    ("triton", "dtype", "reason"),
    [
        (False, torch.float32, "triton is not installed"),
        (True, torch.float64, "not torch.float64"),
    ],
)
def test_falling_back_to_torch_is_logged_once_for_each_reason(
    folder: str, operands: tuple[Tensor, ...], launched: list[torch.dtype], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, triton: bool, dtype: torch.dtype, reason: str,
) -> None:  # fmt: skip
    operator, _ = modules(folder)
    monkeypatch.setattr(operator, "has_triton", lambda: triton)
    torch_operands.log_fallback.cache_clear()
    for _ in range(2):
        operator.on_gpu(*(x.to(dtype) for x in operands))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert reason in caplog.text
    assert operator.OPERATOR.name in caplog.text
    assert launched == []


def test_what_triton_computes_is_not_logged(
    folder: str, operands: tuple[Tensor, ...], launched: list[torch.dtype], caplog: pytest.LogCaptureFixture
) -> None:
    torch_operands.log_fallback.cache_clear()
    modules(folder)[0].on_gpu(*(x.float() for x in operands))
    assert len(launched) == 1
    assert caplog.records == []


def test_mixtures_too_large_for_the_chip_are_logged_with_their_sizes(
    routing_operands: Operands, caplog: pytest.LogCaptureFixture
) -> None:
    torch_operands.log_fallback.cache_clear()
    operator, _ = modules("latent_memory_routing")
    operator.on_gpu(*routing_operands(1, 3, 1, 256, 200, 2, dtype=torch.float32))
    assert "K = 256 components of dr = 200" in caplog.text


def test_cuda_kernels_are_registered(folder: str) -> None:
    modules(folder)
    name = f"gaussport::{folder}"
    assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")
