"""A small vision transformer of no one's in particular, around any attention: linear patches, a conv stem, a class token."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, dim: int, attention: nn.Module, class_token: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.class_token = attention, class_token
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        if self.class_token:  # the grid mixes by itself, the class token takes the mean of the patches
            mixed = self.attention(y[:, 1:])
            x = x + torch.cat([mixed.mean(1, keepdim=True), mixed], dim=1)
        else:
            x = x + self.attention(y)
        return torch.as_tensor(x + self.mlp(self.ln_2(x)))


class VisionTransformer(nn.Module):
    """Pixels [b, 3, height, width] → logits [b, classes]; `attention(dim, heads, grid)` makes each block's mixer."""

    def __init__(
        self,
        attention: Callable[[int, int, tuple[int, int]], nn.Module],
        grid: tuple[int, int] = (4, 6),
        dim: int = 24,
        heads: int = 2,
        depth: int = 1,
        patch: int = 4,
        classes: int = 5,
        class_token: bool = False,
    ) -> None:
        super().__init__()
        self.image = (3, grid[0] * patch, grid[1] * patch)
        self.stem = nn.Conv2d(3, dim, patch, patch)
        self.pos = nn.Parameter(torch.randn(1, grid[0] * grid[1], dim) * 0.5)
        self.cls = nn.Parameter(torch.randn(1, 1, dim)) if class_token else None
        self.blocks = nn.Sequential(*(Block(dim, attention(dim, heads, grid), class_token) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.stem(pixels).flatten(2).transpose(1, 2) + self.pos
        if self.cls is not None:
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.norm(self.blocks(x))
        return torch.as_tensor(self.head(x[:, 0] if self.cls is not None else x.mean(1)))
