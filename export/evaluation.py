"""Run a module as it is used after training, and give it back as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


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
