"""The sequence classifier, in the order data meets it: embedding, blocks, pooling, head."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from gaussport.errors import ConfigurationError
from gaussport.models.attention import families
from gaussport.models.attention.gma import GMAAttention
from gaussport.models.sequence.config import SequenceConfig
from gaussport.models.sequence.convolution import TokenConvolution

State = dict[str, Tensor]
"""What a stream leaves behind, each part with the batch as its first axis: `count` [B] tokens so far, `pooled` [B, dim],
and of each block `blocks.<i>.recent` [B, width - 1, dim], `blocks.<i>.memory` [B, P, K, dv], `blocks.<i>.mass` [B, P, K]."""


class SequenceClassifier(nn.Module):
    """Tokens [B, N] in int64, rows filled up at the right with `pad` → logits [B, classes].

    A row's answer does not depend on its padding or on other rows. A row of padding alone is answered, with finite numbers
    that mean nothing.
    """

    def __init__(self, config: SequenceConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embed = nn.Embedding(config.vocabulary, config.dim)
        self.blocks = nn.ModuleList(SequenceBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_epsilon)
        self.head = nn.Linear(config.dim, config.classes)
        nn.init.normal_(self.token_embed.weight, std=config.dim**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embed(tokens)
        mask = (tokens != self.config.pad).to(x.dtype)
        for block in self.blocks:
            x = block(x, mask)
        return torch.as_tensor(self.head(self._pooled(self.norm(x), mask)))

    def _pooled(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, N, dim] → [B, dim], over the tokens that are no padding."""
        count = mask.sum(1, keepdim=True)
        if self.config.pooling == "mean":
            return (x * mask[:, :, None]).sum(1) / count.clamp(min=1)
        return (x * _last(mask)).sum(1)

    def initial_state(self, batch: int) -> State:
        """The state of `batch` streams that have had no token yet.

        Raises:
            ConfigurationError: the model cannot stream.
        """
        weight = self.head.weight
        state = {
            "count": torch.zeros(batch, dtype=torch.int64, device=weight.device),
            "pooled": weight.new_zeros(batch, self.config.dim),
        }
        for index, block in enumerate(self._streaming()):
            shapes = block.state_shapes()
            state |= {f"blocks.{index}.{part}": weight.new_zeros(batch, *shape) for part, shape in shapes.items()}
        return state

    def step(self, tokens: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """The next tokens [B, C] of B streams: the logits of all that each has had so far, and its state from here on.

        Chunks may have any length and be filled up at the right with `pad`; a stream whose row is padding alone stays as it
        is. Any way of cutting a sequence into chunks gives what `forward` gives for the whole.

        Raises:
            ConfigurationError: the model cannot stream.
        """
        blocks: State = {}
        x = self.token_embed(tokens)
        mask = (tokens != self.config.pad).to(x.dtype)
        for index, block in enumerate(self._streaming()):
            prefix = f"blocks.{index}."
            x, parts = block.step(x, mask, {part: state[prefix + part] for part in block.state_shapes()})
            blocks |= {prefix + part: tensor for part, tensor in parts.items()}
        x = self.norm(x)
        count = state["count"] + mask.sum(1).to(torch.int64)
        if self.config.pooling == "mean":
            kept = state["pooled"] + (x * mask[:, :, None]).sum(1)
            pooled = kept / count.clamp(min=1).to(x.dtype)[:, None]
        else:
            idle = (mask.sum(1, keepdim=True) == 0).to(x.dtype)
            kept = pooled = (x * _last(mask)).sum(1) + idle * state["pooled"]
        return torch.as_tensor(self.head(pooled)), {"count": count, "pooled": kept, **blocks}

    def _streaming(self) -> list["SequenceBlock"]:
        """The blocks, where each keeps a memory."""
        if not self.config.causal or self.config.family != "gma":
            raise ConfigurationError(
                f"this model cannot stream: its attention is {self.config.family} in "
                f"{'causal' if self.config.causal else 'bidirectional'} order, and only causal gma keeps a memory"
            )
        return [cast(SequenceBlock, block) for block in self.blocks]


class SequenceBlock(nn.Module):
    """Convolution, attention and MLP, each added back, the latter two on a normalised input: [B, N, dim] → [B, N, dim]."""

    def __init__(self, config: SequenceConfig) -> None:
        super().__init__()
        hidden = round(config.dim * config.mlp_ratio)
        self.conv = TokenConvolution(config.dim, config.convolution, config.causal)
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_epsilon)
        self.attn = families()[config.family].build(config.attention, config.dim, (1, 1))  # neither family asks for a grid
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_epsilon)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, hidden),
            nn.GELU(approximate="none" if config.gelu == "exact" else "tanh"),
            nn.Linear(hidden, config.dim),
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.conv(x, mask[:, :, None])
        x = x + self.attn(self.norm1(x), mask)
        return torch.as_tensor(x + self.mlp(self.norm2(x)))

    def step(self, x: Tensor, mask: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """The same for the next tokens of streams in this state, and the state after them."""
        x, recent = self.conv.step(x, mask[:, :, None], state["recent"])
        mixed, memory, mass = self._gma.step(self.norm1(x), mask, state["memory"], state["mass"])
        x = x + mixed
        return x + self.mlp(self.norm2(x)), {"recent": recent, "memory": memory, "mass": mass}

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """The axes of each part of a stream's state, without the batch."""
        P, K = self._gma.mu.shape[:2]
        return {
            "recent": (self.conv.width - 1, self.conv.weight.shape[0]),
            "memory": (P, K, self._gma.value_width),
            "mass": (P, K),
        }

    @property
    def _gma(self) -> GMAAttention:
        assert isinstance(self.attn, GMAAttention)  # the classifier asked before it streams
        return self.attn


def _last(mask: Tensor) -> Tensor:
    """[B, N, 1] with 1 at each row's last token that is no padding; padding is at the right."""
    following = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], dim=1)
    return (mask - following)[:, :, None]
