"""Positions without a table: a depthwise convolution over the tokens, added to them.

A table of positions ends where training ended. A convolution tells a token what stands around it, in which order and how
far away, at any length, and sees where the sequence begins by the zeros before it (Chu et al. 2021, *Conditional positional
encodings for vision transformers*). Order over longer distances is what causal attention adds.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


class TokenConvolution(nn.Module):
    """x [B, N, dim] → x + convolution of x, where padded tokens (mask [B, N, 1] of 0) count as zeros.

    A causal one reads `width` tokens up to each, another as many before as after it.
    """

    def __init__(self, dim: int, width: int, causal: bool) -> None:
        super().__init__()
        self.width, self.causal = width, causal
        self.weight = nn.Parameter(torch.empty(dim, 1, width))
        self.bias = nn.Parameter(torch.zeros(dim))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x * mask
        before = self.width - 1 if self.causal else self.width // 2
        return x + self._convolved(pad(x, (0, 0, before, self.width - 1 - before)))

    def step(self, x: Tensor, mask: Tensor, recent: Tensor) -> tuple[Tensor, Tensor]:
        """The next tokens of a stream, after the `recent` ones [B, width - 1, dim]; and the most recent ones then."""
        x = x * mask
        joined = torch.cat([recent, x], dim=1)
        # A row may be shorter than the chunk: its most recent tokens end where its own tokens do.
        own = mask.sum((1, 2)).to(torch.int64)
        places = own[:, None] + torch.arange(self.width - 1, device=x.device)
        following = joined.gather(1, places[:, :, None].expand(-1, -1, x.shape[-1]))
        return x + self._convolved(joined), following

    def _convolved(self, x: Tensor) -> Tensor:
        """[B, N + width - 1, dim] → [B, N, dim]."""
        mixed = torch.conv1d(x.transpose(1, 2), self.weight, self.bias, groups=x.shape[-1])
        return mixed.transpose(1, 2)
