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
    """Multi-head dot-product attention without biases. In `causal` order a token reads itself and those before it."""

    causal: bool = False


class DotAttention(nn.Module):
    """[B, N, dim] → [B, N, dim]; key_mask [B, N] with 0 keeps a padded token from being read."""

    def __init__(self, config: DotConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.head_width = config.head_width(dim)
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> Tensor:
        query, key, value = (
            projection(x).unflatten(-1, (self.config.heads, self.head_width)).transpose(1, 2)  # [B, P, N, D]
            for projection in (self.q, self.k, self.v)
        )
        causal = self.config.causal
        mixed: Tensor = scaled_dot_product_attention(query, key, value, _bias(key_mask, causal, x), is_causal=causal)
        return torch.as_tensor(self.out(mixed.transpose(1, 2).flatten(2)))


def _bias(key_mask: Tensor | None, causal: bool, x: Tensor) -> Tensor | None:
    """What is added to the scores, [B, 1, 1, N]. In causal order nothing: padding is at the right, where no token looks."""
    if key_mask is None or causal:
        return None
    least = torch.finfo(x.dtype).min  # not -inf: a row of padding alone must not become 0/0
    return ((1 - key_mask.to(x.dtype)) * least)[:, None, None, :]


def recognise(shapes: Mapping[str, tuple[int, ...]], dim: int) -> Mapping[str, Any] | None:
    """Nothing of the configuration: q, k and v are [dim, dim] with any number of heads."""
    return {} if shapes.keys() >= {"q.weight", "k.weight", "v.weight"} and "mu" not in shapes else None


FAMILY = Family(
    "dot",
    DotConfig,
    lambda config, dim, _grid: DotAttention(config, dim),  # type: ignore[arg-type]
    recognise,
)
