"""The stored numbers: dense, finite, and float32 whatever precision they were saved in."""

from collections.abc import Mapping

import torch
from torch import Tensor

from gaussport.errors import CheckpointError


def check_tensors(tensors: Mapping[str, Tensor], source: str, file_bytes: int, whole_numbers: bool = False) -> None:
    """Nothing is what no weight can be. Whole numbers may be, in a module of the caller's own: `whole_numbers`.

    Raises:
        CheckpointError: a tensor is not dense, is larger than its file can hold, or has whole numbers; the message names it.
    """
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            raise CheckpointError(f"{name} in {source} is a sparse, quantised or empty tensor: save it dense")
        if not tensor.is_floating_point() and not whole_numbers:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(f"{name} in {source} holds {kind}, but weights are floating-point numbers")
        if tensor.numel() > file_bytes:  # a stride of 0 makes one stored number look like any amount
            raise CheckpointError(f"{name} in {source} claims {tensor.numel():,} numbers, more than the file can hold")


def finite_float32(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Every tensor as float32, contiguous; names that share one tensor in the file share it here. Whole numbers stay.

    Raises:
        CheckpointError: a tensor is not finite in float32; the message names it.
    """
    made: dict[tuple[object, ...], Tensor] = {}
    found = {}
    for name, tensor in tensors.items():
        # The same numbers in memory are one parameter under two names: tied weights stay tied.
        place = (tensor.data_ptr() or id(tensor), tensor.dtype, tensor.shape, tensor.stride())
        if place not in made:
            made[place] = _float32(name, tensor, source)
        found[name] = made[place]
    return found


def _float32(name: str, tensor: Tensor, source: str) -> Tensor:
    if not tensor.is_floating_point():
        return tensor.detach().clone()
    numbers = tensor.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    bad = int((~torch.isfinite(numbers)).sum())
    if bad:
        raise CheckpointError(
            f"{name} in {source} has {bad} of {numbers.numel()} numbers that are NaN or infinite in float32: "
            "its training diverged"
        )
    return numbers
