"""GMA: Gaussian mixture attention. Queries and keys become responsibilities over K learned Gaussians; values are written
to and read from a K-slot memory. Formulas: OPS.md, *How the modules make the operands*; sizes are ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, softplus

from gaussport.models.attention.family import AttentionConfig, Family, require_count, require_positive
from gaussport.plugins.latent_memory_routing.memory_product import causal_memory_product, memory_product
from gaussport.plugins.latent_memory_routing.torch_op import in_torch, latent_memory_routing, responsibilities


@dataclass(frozen=True, kw_only=True)
class GMAConfig(AttentionConfig):
    """`components` is K, `routing_width` is dr. `value_width` is dv; None gives dim / heads. In `causal` order a token
    reads what it and the tokens before it wrote."""

    components: int = 32
    routing_width: int = 16
    value_width: int | None = None
    causal: bool = False
    variance_floor: float = 1e-4
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "components", "routing_width")
        require_positive(self, "variance_floor", "epsilon")
        if self.value_width is not None:
            require_count(self, "value_width")


class GMAAttention(nn.Module):
    """[B, N, dim] → [B, N, dim]; key_mask [B, N] with 0 keeps a padded token out of the memory."""

    def __init__(self, config: GMAConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.value_width = config.value_width or config.head_width(dim)
        P, K, dr = config.heads, config.components, config.routing_width
        self.q = nn.Linear(dim, P * dr, bias=False)
        self.k = nn.Linear(dim, P * dr, bias=False)
        self.v = nn.Linear(dim, P * self.value_width, bias=False)
        self.out = nn.Linear(P * self.value_width, dim, bias=False)
        self.mu = nn.Parameter(torch.empty(P, K, dr))
        self.omega = nn.Parameter(torch.empty(P, K, dr))
        self.alpha = nn.Parameter(torch.empty(P, K))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the mixture: components scattered as a standard normal, equal widths and priors."""
        nn.init.normal_(self.mu)
        nn.init.zeros_(self.omega)
        nn.init.zeros_(self.alpha)

    def mixture(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance [P, K, dr] and log prior [P, K] of the learned Gaussians."""
        return self.mu, softplus(self.omega) + self.config.variance_floor, log_softmax(self.alpha, dim=-1)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> Tensor:
        # Never in an export, which is of a model in eval mode: there the operator is one node.
        route = in_torch if self.training and x.device.type == "cpu" else latent_memory_routing
        mixed = route(*self._routed(x), *self.mixture(), key_mask, self.config.epsilon, self.config.causal)
        return torch.as_tensor(self.out(mixed.flatten(2)))

    def step(self, x: Tensor, key_mask: Tensor, memory: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The next tokens of a sequence in causal order: what `forward` would give for them after all those before, which
        are known by what they left in the memory [B, P, K, dv] and its mass [B, P, K]. Returns both as they are then."""
        query, key, value = self._routed(x)
        mixture = self.mixture()
        read = responsibilities(query, *mixture)
        write = responsibilities(key, *mixture) * key_mask.to(x.dtype)[:, :, None, None]
        product = causal_memory_product if torch.compiler.is_exporting() else partial(memory_product, causal=True)
        before, ours = torch.einsum("bnpk,bpkd->bnpd", read, memory), product(read, write, value)
        weight = torch.einsum("bnpk,bnpk->bnp", read, mass[:, None] + write.cumsum(1))
        mixed = (before + ours) / (weight[..., None] + self.config.epsilon)
        memory = memory + torch.einsum("bnpk,bnpd->bpkd", write, value)
        return torch.as_tensor(self.out(mixed.flatten(2))), memory, mass + write.sum(1)

    def _routed(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query and key [B, N, P, dr], value [B, N, P, dv]."""
        P, dr = self.config.heads, self.config.routing_width
        return (
            self.q(x).unflatten(-1, (P, dr)),
            self.k(x).unflatten(-1, (P, dr)),
            self.v(x).unflatten(-1, (P, self.value_width)),
        )


def recognise(shapes: Mapping[str, tuple[int, ...]], dim: int) -> Mapping[str, Any] | None:
    """Heads, components and routing width from mu [P, K, dr], the value width from v; order and floors leave no trace."""
    mu, rows = shapes.get("mu", ()), shapes.get("v.weight", (0,))[0]
    if len(mu) != 3 or "omega" not in shapes or "alpha" not in shapes:
        return None
    width = None if rows == dim or rows % mu[0] else rows // mu[0]
    return {"heads": mu[0], "components": mu[1], "routing_width": mu[2], "value_width": width}


FAMILY = Family(
    "gma",
    GMAConfig,
    lambda config, dim, _grid: GMAAttention(config, dim),  # type: ignore[arg-type]
    recognise,
)
