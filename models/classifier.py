"""The image classifier: a pre-norm vision transformer that takes any attention family, in the order data meets it."""

import torch
from torch import Tensor, nn

from gaussport.models.attention import families
from gaussport.models.config import ClassifierConfig


class Classifier(nn.Module):
    """Normalised images [B, C, height, width] → logits [B, classes]; parameter names are those of published checkpoints."""

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        H, W = config.grid
        self.patch_embed = nn.Linear(config.patch * config.patch * config.channels, config.dim)
        self.pos_embed = nn.Parameter(torch.empty(1, H * W, config.dim))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_epsilon)
        self.head = nn.Linear(config.dim, config.classes)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patch_embed(patches(pixels, self.config.patch)) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.head(self.norm(x).mean(1)))


class Block(nn.Module):
    """Attention and MLP, each on a normalised input and added back: [B, N, dim] → [B, N, dim]."""

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        hidden = round(config.dim * config.mlp_ratio)
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_epsilon)
        self.attn = families()[config.family].build(config.attention, config.dim, config.grid)
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_epsilon)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, hidden),
            nn.GELU(approximate="none" if config.gelu == "exact" else "tanh"),
            nn.Linear(hidden, config.dim),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return torch.as_tensor(x + self.mlp(self.norm2(x)))


def patches(pixels: Tensor, patch: int) -> Tensor:
    """[B, C, height, width] → [B, N, patch·patch·C]; each patch row-major with channels last (row, column, channel)."""
    split = pixels.unflatten(2, (-1, patch)).unflatten(4, (-1, patch))  # [B, C, H, row, W, column]
    return torch.as_tensor(split.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2))
