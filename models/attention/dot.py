"""The dot-product twin: the same trunk with scaled dot-product attention, for comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from gaussport.models.attention.family import AttentionConfig, Family


@dataclass(frozen=True, kw_only=True)
class DotConfig(AttentionConfig):
    """Multi-head dot-product attention without biases."""


class DotAttention(nn.Module):
    """[B, N, dim] → [B, N, dim]."""

    def __init__(self, config: DotConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.head_width = config.head_width(dim)
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            projection(x).unflatten(-1, (self.config.heads, self.head_width)).transpose(1, 2)  # [B, P, N, D]
            for projection in (self.q, self.k, self.v)
        )
        mixed: Tensor = scaled_dot_product_attention(query, key, value)
        return torch.as_tensor(self.out(mixed.transpose(1, 2).flatten(2)))


def recognise(shapes: Mapping[str, tuple[int, ...]], dim: int) -> Mapping[str, Any] | None:
    """Nothing of the configuration: q, k and v are [dim, dim] with any number of heads."""
    return {} if shapes.keys() >= {"q.weight", "k.weight", "v.weight"} and "mu" not in shapes else None


FAMILY = Family(
    "dot",
    DotConfig,
    lambda config, dim, _grid: DotAttention(config, dim),  # type: ignore[arg-type]
    recognise,
)
