"""Small sequence classifiers with random weights, and random documents for them."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gaussport.models.sequence import SequenceClassifier, sequence_preset

PRESETS = ("gma-bytes-tiny", "gma-bytes-tiny-causal", "dot-bytes-tiny", "dot-bytes-tiny-causal")


def classifier(preset: str, **changes: Any) -> SequenceClassifier:
    """The preset with weights that are far from what they begin as, so that no part of it is idle."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = SequenceClassifier(replace(sequence_preset(preset), **changes)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def documents(lengths: list[int], seed: int = 0) -> list[Tensor]:
    """Random bytes [n] of each length."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 256, (n,), generator=draw) for n in lengths]


def padded(rows: list[Tensor], length: int, pad: int = 256) -> Tensor:
    """The rows as one batch [B, length]."""
    batch = torch.full((len(rows), length), pad)
    for index, row in enumerate(rows):
        batch[index, : len(row)] = row
    return batch
