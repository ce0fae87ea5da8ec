"""The checks that every torch operator makes of its operands, in eager mode, under tracing and in export alike."""

import logging
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from gaussport.plugins.operator import Operator

_log = logging.getLogger(__name__)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_operands(operator: Operator, tensors: Sequence[Tensor | None]) -> None:
    """Raise a ValueError unless shapes fit, all operands share one floating dtype (a mask may differ) and one device."""
    operator.bind([None if tensor is None else tensor.shape for tensor in tensors])
    first = tensors[0]
    assert first is not None
    if first.dtype not in _DTYPES:
        raise ValueError(
            f"{operator.name}: {operator.operands[0].name} is {first.dtype}; use float16, bfloat16, float32 or 64"
        )
    for operand, tensor in zip(operator.operands, tensors, strict=True):
        if tensor is None:
            continue
        if tensor.dtype != first.dtype and not operand.optional:
            raise ValueError(
                f"{operator.name}: {operand.name} is {tensor.dtype} but {operator.operands[0].name} is {first.dtype}: "
                "convert them to one dtype"
            )
        if tensor.device != first.device:
            raise ValueError(
                f"{operator.name}: {operand.name} is on {tensor.device} but {operator.operands[0].name} is on {first.device}"
            )


def check_positive(operator: Operator, name: str, tensor: Tensor) -> None:
    """Raise a ValueError unless every element is positive. On a GPU the check is left to the device, without a wait."""
    positive = (tensor > 0).all()
    message = f"{operator.name}: {name} must be positive everywhere (a NaN is not)"
    if tensor.is_cuda:
        torch._assert_async(positive, message)
    elif not positive:
        raise ValueError(message)


def computing_dtype(tensor: Tensor) -> torch.dtype:
    """float64 stays float64; everything else is computed in float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


@cache
def has_triton() -> bool:
    """Whether the GPU kernels' compiler is installed."""
    return find_spec("triton") is not None


@cache
def log_fallback(reason: str) -> None:
    """Warn that CUDA tensors are computed by plain torch, once for each reason, which names the operator."""
    _log.warning("%s; CUDA tensors are computed by plain torch, which is slower", reason)


def with_leading(tensor: Tensor, axis: int | None, size: int) -> Tensor:
    """The tensor of a vmap with its mapped axis in front; one that is not mapped is repeated `size` times, as a view."""
    return tensor.expand(size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
