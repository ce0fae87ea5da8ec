"""GMA by other hands: responsibilities directly and by multiplied-out squares, bidirectional and causal."""

import math
from typing import Any

import torch
from torch import Tensor, nn


class Mixture(nn.Module):
    """K diagonal Gaussians per head."""

    def __init__(self, heads: int, components: int, width: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(heads, components, width))
        self.omega = nn.Parameter(torch.randn(heads, components, width) * 0.5)
        self.alpha = nn.Parameter(torch.randn(heads, components) * 0.5)

    def variance(self) -> Tensor:
        return nn.functional.softplus(self.omega) + 1e-4


class DirectRouting(nn.Module):
    """Tokens [b, n, p, m] against means, one broadcast square; memory by einsum; ε in the read."""

    def __init__(self, dim: int, heads: int, _grid: tuple[int, int], components: int = 6, width: int = 5) -> None:
        super().__init__()
        self.heads = heads
        self.mixture = Mixture(heads, components, width)
        self.to_q = nn.Linear(dim, heads * width)
        self.to_k = nn.Linear(dim, heads * width)
        self.to_v = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)

    def responsibilities(self, x: Tensor) -> Tensor:
        mix = self.mixture
        variance = mix.variance()
        squared = (x[:, :, :, None, :] - mix.mean) ** 2 / variance
        log_density = -0.5 * (torch.log(2 * math.pi * variance) + squared).sum(-1)
        return torch.softmax(torch.log_softmax(mix.alpha, -1) + log_density, dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = (to(x).reshape(b, n, self.heads, -1) for to in (self.to_q, self.to_k, self.to_v))
        return torch.as_tensor(self.proj(self.route(self.responsibilities(q), self.responsibilities(k), v).reshape(b, n, c)))

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        memory = torch.einsum("bnpk,bnpd->bpkd", write, v)
        mass = write.sum(1)
        numerator = torch.einsum("bnpk,bpkd->bnpd", read, memory)
        denominator = torch.einsum("bnpk,bpk->bnp", read, mass)
        return numerator / (denominator[..., None] + 1e-6)


class CumsumRouting(DirectRouting):
    """Causal by running sums of what each token writes."""

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        memory = torch.cumsum(write[..., None] * v[..., None, :], dim=1)  # [b, n, p, k, d]
        mass = torch.cumsum(write, dim=1)
        numerator = torch.einsum("bnpk,bnpkd->bnpd", read, memory)
        return numerator / ((read * mass).sum(-1, keepdim=True) + 1e-6)


class TrilRouting(DirectRouting):
    """Causal by the affinity of responsibilities under a triangular mask."""

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        affinity = torch.einsum("bipk,bjpk->bpij", read, write)
        affinity = torch.tril(affinity)
        out = torch.einsum("bpij,bjpd->bipd", affinity, v)
        return out / (affinity.sum(-1).transpose(1, 2)[..., None] + 1e-5)


class MatmulRouting(DirectRouting):
    """Heads first, the square multiplied out into two matrix products, log-sum-exp, the read divided before it reads."""

    def responsibilities(self, x: Tensor) -> Tensor:
        mix = self.mixture
        precision = 1 / mix.variance()
        x = x.transpose(1, 2)  # [b, p, n, m]
        constant = torch.log_softmax(mix.alpha, -1) - 0.5 * (mix.mean**2 * precision - precision.log()).sum(-1)
        score = x @ (mix.mean * precision).transpose(1, 2) - 0.5 * (x * x) @ precision.transpose(1, 2) + constant[:, None]
        return torch.exp(score - torch.logsumexp(score, -1, keepdim=True))

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        memory = write.transpose(-1, -2) @ v.transpose(1, 2)
        mass = write.sum(-2).unsqueeze(-1)  # [b, p, k, 1]
        out = (read / (read @ mass + 1e-6)) @ memory
        return out.transpose(1, 2)


class MaskedRouting(CumsumRouting):
    """Tokens that a gate closes write nothing: a mask over tokens, made from the input."""

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = (to(x).reshape(b, n, self.heads, -1) for to in (self.to_q, self.to_k, self.to_v))
        keep = (x[..., 0] > -0.5).to(x.dtype)
        write = self.responsibilities(k) * keep[:, :, None, None]
        return torch.as_tensor(self.proj(self.route(self.responsibilities(q), write, v).reshape(b, n, c)))


STYLES: dict[str, Any] = {
    style.__name__: style for style in (DirectRouting, CumsumRouting, TrilRouting, MatmulRouting, MaskedRouting)
}
