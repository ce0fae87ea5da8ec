"""The stored numbers: dense, finite, and float32 whatever precision they were saved in."""

from collections.abc import Mapping

import torch
from torch import Tensor

from gaussport.errors import CheckpointError


def finite_float32(tensors: Mapping[str, Tensor], source: str, file_bytes: int) -> dict[str, Tensor]:
    """Every tensor as float32, contiguous, with its own memory.

    Raises:
        CheckpointError: a tensor is not dense, is larger than its file can hold, has whole numbers, or is not finite
            in float32; the message names it.
    """
    return {name: _float32(name, tensor, source, file_bytes) for name, tensor in tensors.items()}


def _float32(name: str, tensor: Tensor, source: str, file_bytes: int) -> Tensor:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise CheckpointError(f"{name} in {source} is a sparse, quantised or empty tensor: save it dense")
    if not tensor.is_floating_point():
        kind = str(tensor.dtype).removeprefix("torch.")
        raise CheckpointError(f"{name} in {source} holds {kind}, but weights are floating-point numbers")
    if tensor.numel() > file_bytes:  # a stride of 0 makes one stored number look like any amount
        raise CheckpointError(f"{name} in {source} claims {tensor.numel():,} numbers, more than the file can hold")
    numbers = tensor.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    bad = int((~torch.isfinite(numbers)).sum())
    if bad:
        raise CheckpointError(
            f"{name} in {source} has {bad} of {numbers.numel()} numbers that are NaN or infinite in float32: "
            "its training diverged"
        )
    return numbers
