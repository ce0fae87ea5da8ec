"""Which way a CUDA tensor takes. No GPU is needed: the CUDA kernels are called with CPU tensors, the launches replaced."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest
import torch
from torch import Tensor

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


def test_cuda_kernels_are_registered(folder: str) -> None:
    modules(folder)
    name = f"gaussport::{folder}"
    assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")
