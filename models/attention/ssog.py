"""SSOG: separable sum of Gaussians. Each head owns R Gaussian atoms over relative position; small probes of each token
steer them. Content never scores, it only steers. Names and formulas: OPS.md, *How the modules make the operands*."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from gaussport.errors import ConfigurationError
from gaussport.models.attention.family import AttentionConfig, Family, require_count, require_positive
from gaussport.plugins.separable_gaussian_filter.torch_op import separable_gaussian_filter


@dataclass(frozen=True, kw_only=True)
class SSOGConfig(AttentionConfig):
    """`atoms` is R; `max_offset` bounds how far a token may steer an atom and `sigma_floor` how narrow one may get, both
    in grid cells."""

    atoms: int = 4
    steered: bool = True
    max_offset: float = 4.0
    sigma_floor: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "atoms")
        require_positive(self, "max_offset")
        if not 0 <= self.sigma_floor < float("inf"):
            raise ConfigurationError(f"sigma_floor is {self.sigma_floor!r} but must be zero or a positive number")


class SSOGAttention(nn.Module):
    """[B, N, dim] → [B, N, dim] over a token grid of `grid` = (H, W) cells, N = H·W in row-major order."""

    def __init__(self, config: SSOGConfig, dim: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.config, self.grid = config, grid
        self.head_width = config.head_width(dim)
        P, R = config.heads, config.atoms
        self.v = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.mu = nn.Parameter(torch.empty(P, R, 2))
        self.raw_sigma = nn.Parameter(torch.empty(P, R, 2))
        self.log_lambda = nn.Parameter(torch.empty(P, R))
        self.raw_temperature = nn.Parameter(torch.empty(()))
        if config.steered:
            self.mu_delta = nn.Linear(dim, P * R * 2)
            self.sigma_delta = nn.Linear(dim, P * R * 2)
            self.lambda_gate = nn.Linear(dim, P * R)
            self.raw_mu_delta_scale = nn.Parameter(torch.empty(()))
            self.raw_sigma_delta_scale = nn.Parameter(torch.empty(()))
            self.raw_lambda_gate_scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as published: a fixed field of random offsets that steering leaves alone until it learns to."""
        nn.init.normal_(self.mu, std=0.5)
        nn.init.constant_(self.raw_sigma, -0.5)
        nn.init.zeros_(self.log_lambda)
        nn.init.constant_(self.raw_temperature, -1.0)
        if self.config.steered:
            for probe in (self.mu_delta, self.sigma_delta, self.lambda_gate):
                nn.init.zeros_(probe.weight)
                nn.init.zeros_(probe.bias)
            for scale in (self.raw_mu_delta_scale, self.raw_sigma_delta_scale, self.raw_lambda_gate_scale):
                nn.init.constant_(scale, -8.0)

    def forward(self, x: Tensor) -> Tensor:
        H, W = self.grid
        value = self.v(x).unflatten(-1, (self.config.heads, self.head_width)).unflatten(1, (H, W))  # [B, H, W, P, D]
        mixed = separable_gaussian_filter(value, *self.field(x))
        return torch.as_tensor(self.out(mixed.flatten(3).flatten(1, 2)))

    def field(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The operator's offset, width [b, h, w, P, R, 2] and weight [b, h, w, P, R] for tokens x [B, N, dim]; a fixed
        field has b = h = w = 1."""
        P, R = self.config.heads, self.config.atoms
        sigma = softplus(self.raw_sigma) + 1e-4 + self.config.sigma_floor
        temperature = softplus(self.raw_temperature) + 0.5
        if not self.config.steered:
            weight = torch.softmax(self.log_lambda, dim=-1)
            fixed = (self.mu, sigma * temperature.sqrt(), weight)
            return fixed[0].view(1, 1, 1, P, R, 2), fixed[1].view(1, 1, 1, P, R, 2), fixed[2].view(1, 1, 1, P, R)
        mu_scale, sigma_scale, gate_scale = (
            softplus(raw) + 1e-4 for raw in (self.raw_mu_delta_scale, self.raw_sigma_delta_scale, self.raw_lambda_gate_scale)
        )
        mu_delta = torch.tanh(self.mu_delta(x)).unflatten(-1, (P, R, 2))
        sigma_delta = torch.tanh(self.sigma_delta(x)).unflatten(-1, (P, R, 2))
        gate = torch.tanh(self.lambda_gate(x)).unflatten(-1, (P, R))
        offset = self.mu + mu_scale * self.config.max_offset * mu_delta
        width = sigma * temperature.sqrt() * torch.exp(sigma_scale * sigma_delta)
        weight = torch.softmax(self.log_lambda + gate_scale * gate, dim=-1)
        return offset.unflatten(1, self.grid), width.unflatten(1, self.grid), weight.unflatten(1, self.grid)

    def constants(self) -> dict[str, Tensor]:
        """The field that no token has steered: `fixed_offset`, `fixed_width` [P, R, 2] in cells and `fixed_weight` [P, R];
        and, when steered, how far a token can: `gates` [3] = (s_μ · max_offset in cells, s_σ, s_λ)."""
        sigma = softplus(self.raw_sigma) + 1e-4 + self.config.sigma_floor
        width = sigma * (softplus(self.raw_temperature) + 0.5).sqrt()
        fixed = {"fixed_offset": self.mu, "fixed_width": width, "fixed_weight": torch.softmax(self.log_lambda, dim=-1)}
        if not self.config.steered:
            return fixed
        raw = (self.raw_mu_delta_scale, self.raw_sigma_delta_scale, self.raw_lambda_gate_scale)
        mu_gate, sigma_gate, lambda_gate = (softplus(scale) + 1e-4 for scale in raw)
        return fixed | {"gates": torch.stack([mu_gate * self.config.max_offset, sigma_gate, lambda_gate])}


def recognise(shapes: Mapping[str, tuple[int, ...]], dim: int) -> Mapping[str, Any] | None:
    """Heads and atoms from mu [P, R, 2], steering from the probes; the two lengths in cells leave no trace."""
    mu = shapes.get("mu", ())
    if len(mu) != 3 or mu[2] != 2 or "raw_sigma" not in shapes:
        return None
    return {"heads": mu[0], "atoms": mu[1], "steered": "mu_delta.weight" in shapes}


FAMILY = Family("ssog", SSOGConfig, SSOGAttention, recognise)  # type: ignore[arg-type]
