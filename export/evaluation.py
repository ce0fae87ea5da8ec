"""Run a module as it is used after training, and give it back as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from gaussport.export.inputs import Inputs


@contextmanager
def evaluating(module: nn.Module) -> Iterator[nn.Module]:
    """Eval mode without gradients inside the block; each submodule's own training flag is restored after it."""
    flags = {part: part.training for part in module.modules()}
    try:
        module.eval()
        with torch.no_grad():
            yield module
    finally:
        for part, flag in flags.items():
            part.training = flag


def tensors_of(inputs: Inputs) -> tuple[Tensor, ...]:
    """The arrays as tensors, for a module's `forward`: contiguous copies, for torch has no negative strides."""
    return tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in inputs.values())


def widened(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same with fractions in float64; whole numbers stay."""
    return tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors)
