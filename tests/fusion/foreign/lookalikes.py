"""Attention that looks like SSOG or GMA and is something else. Each class says what is different."""

import torch
from torch import Tensor, nn

from .gma import CumsumRouting, DirectRouting
from .ssog import EinsumFixed, EinsumSteered


def distances(size: int) -> Tensor:
    cells = torch.arange(size, dtype=torch.float32)
    return cells[:, None] - cells[None, :]


class JointSoftmax(EinsumSteered):
    """One softmax over all cells of the grid for each atom."""

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        dy, dx = distances(h)[:, None, None, None, :, None], distances(w)[:, None, None, None, :]
        score = -((dy - mu[..., 0, None, None]) ** 2) / (2 * sigma[..., 0, None, None] ** 2)
        score = score - (dx - mu[..., 1, None, None]) ** 2 / (2 * sigma[..., 1, None, None] ** 2)
        share = torch.softmax(score.flatten(-2), dim=-1).unflatten(-1, (h, w))
        return torch.einsum("biwpr,biwprjk,bjkpd->biwpd", lam, share, v)


class MixtureNormalised(EinsumSteered):
    """The mixture of all atoms is divided by its sum over the grid."""

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        dy, dx = distances(h)[:, None, None, None, :], distances(w)[:, None, None, :]
        row = torch.exp(-((dy - mu[..., 0, None]) ** 2) / (2 * sigma[..., 0, None] ** 2))
        col = torch.exp(-((dx - mu[..., 1, None]) ** 2) / (2 * sigma[..., 1, None] ** 2))
        kernel = torch.einsum("biwpr,biwprj,biwprk->biwpjk", lam, row, col)
        kernel = kernel / kernel.sum((-1, -2), keepdim=True)
        return torch.einsum("biwpjk,bjkpd->biwpd", kernel, v)


class AtomsAndCells(EinsumSteered):
    """One softmax over atoms and rows together; λ inside the exponent."""

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        score = -((distances(h)[:, None, None, None] - mu[..., 0, None]) ** 2) / (2 * sigma[..., 0, None] ** 2)
        row = torch.softmax((score + lam.log()[..., None]).flatten(-2), dim=-1).unflatten(-1, (lam.shape[-1], h))
        col = self.gaussian(distances(w)[:, None, None, :], mu[..., 1], sigma[..., 1])
        u = torch.einsum("bikprj,bjkpd->bikprd", row, v)
        return torch.einsum("biwprk,bikprd->biwpd", col, u)


class QueryRows(EinsumSteered):
    """Both passes follow the query token, as a literal reading of the product of two filters has it."""

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        row = self.gaussian(distances(h)[:, None, None, None, :], mu[..., 0], sigma[..., 0])
        col = self.gaussian(distances(w)[None, :, None, None, :], mu[..., 1], sigma[..., 1])
        return torch.einsum("biwpr,biwprj,biwprk,bjkpd->biwpd", lam, row, col, v)


class Correlated(EinsumSteered):
    """A tilted Gaussian: the exponent has a product of row and column."""

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        y = (distances(h)[:, None, None, None, :, None] - mu[..., 0, None, None]) / sigma[..., 0, None, None]
        x = (distances(w)[:, None, None, None, :] - mu[..., 1, None, None]) / sigma[..., 1, None, None]
        share = torch.softmax((-0.5 * (y * y - 0.8 * y * x + x * x)).flatten(-2), dim=-1).unflatten(-1, (h, w))
        return torch.einsum("biwpr,biwprjk,bjkpd->biwpd", lam, share, v)


class Clipped(EinsumSteered):
    """Exponents are bounded from below, so that far cells keep some weight."""

    def gaussian(self, distance: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
        score = -((distance - mu[..., None]) ** 2) / (2 * sigma[..., None] ** 2)
        return torch.softmax(score.clamp(min=-3.0), dim=-1)


class SafeSum(EinsumSteered):
    """Filters are divided by their sum plus a constant, and so sum to less than one."""

    def gaussian(self, distance: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
        weight = torch.exp(-((distance - mu[..., None]) ** 2) / (2 * sigma[..., None] ** 2))
        return weight / (weight.sum(-1, keepdim=True) + 1e-2)


class Laplacian(EinsumSteered):
    """The distance itself in the exponent, not its square."""

    def gaussian(self, distance: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
        return torch.softmax(-torch.abs(distance - mu[..., None]) / sigma[..., None], dim=-1)


class FixedLaplacian(EinsumFixed):
    """The same for a fixed field: a table of weights that is normalised and no Gaussian."""

    def kernel(self, size: int, axis: int) -> Tensor:
        d = distances(size) - self.field.mu[..., axis, None, None]
        return torch.softmax(-d.abs() / self.field.sigma()[..., axis, None, None], -1)


class FixedUnnormalised(EinsumFixed):
    """A fixed field whose kernels are not divided by their sums."""

    def kernel(self, size: int, axis: int) -> Tensor:
        d = distances(size) - self.field.mu[..., axis, None, None]
        return torch.exp(-0.5 * (d / self.field.sigma()[..., axis, None, None]) ** 2)


class Unnormalised(DirectRouting):
    """Densities instead of responsibilities: nothing divides them by their sum over the components."""

    def responsibilities(self, x: Tensor) -> Tensor:
        squared = (x[:, :, :, None, :] - self.mixture.mean) ** 2 / self.mixture.variance()
        return torch.exp(-0.5 * squared.sum(-1))


class TopK(DirectRouting):
    """Only the two largest responsibilities are kept."""

    def responsibilities(self, x: Tensor) -> Tensor:
        share = super().responsibilities(x)
        kept = torch.zeros_like(share).scatter(-1, share.topk(2, dim=-1).indices, 1.0)
        return share * kept


class TopKRenormalised(TopK):
    """The two largest, divided by their sum."""

    def responsibilities(self, x: Tensor) -> Tensor:
        share = super().responsibilities(x)
        return share / share.sum(-1, keepdim=True)


class NoEpsilon(DirectRouting):
    """Divides by the mass alone."""

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        memory = torch.einsum("bnpk,bnpd->bpkd", write, v)
        mass = torch.einsum("bnpk,bpk->bnp", read, write.sum(1))
        return torch.einsum("bnpk,bpkd->bnpd", read, memory) / mass[..., None]


class SlotNormalised(DirectRouting):
    """Each slot of the memory is divided by its own mass before it is read."""

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        memory = torch.einsum("bnpk,bnpd->bpkd", write, v) / (write.sum(1)[..., None] + 1e-6)
        return torch.einsum("bnpk,bpkd->bnpd", read, memory)


class NeverDivided(DirectRouting):
    """What is read is not divided by anything."""

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("bnpk,bpkd->bnpd", read, torch.einsum("bnpk,bnpd->bpkd", write, v))


class StrictlyBefore(CumsumRouting):
    """A token reads only what those before it wrote."""

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        written = write[..., None] * v[..., None, :]
        memory, mass = torch.cumsum(written, dim=1) - written, torch.cumsum(write, dim=1) - write
        numerator = torch.einsum("bnpk,bnpkd->bnpd", read, memory)
        return numerator / ((read * mass).sum(-1, keepdim=True) + 1e-6)


class CausalAboveOnly(CumsumRouting):
    """The numerator is causal, the mass that divides it counts every token."""

    def route(self, read: Tensor, write: Tensor, v: Tensor) -> Tensor:
        memory = torch.cumsum(write[..., None] * v[..., None, :], dim=1)
        mass = write.sum(1, keepdim=True)
        return torch.einsum("bnpk,bnpkd->bnpd", read, memory) / ((read * mass).sum(-1, keepdim=True) + 1e-6)


class TwoMixtures(DirectRouting):
    """Queries and keys are scored by mixtures of their own."""

    def __init__(self, dim: int, heads: int, grid: tuple[int, int]) -> None:
        super().__init__(dim, heads, grid)
        self.other = nn.Parameter(torch.randn_like(self.mixture.mean))

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = (to(x).reshape(b, n, self.heads, -1) for to in (self.to_q, self.to_k, self.to_v))
        squared = (k[:, :, :, None, :] - self.other) ** 2 / self.mixture.variance()
        write = torch.softmax(-0.5 * squared.sum(-1), dim=-1)
        return torch.as_tensor(self.proj(self.route(self.responsibilities(q), write, v).reshape(b, n, c)))


class FullCovariance(DirectRouting):
    """Mahalanobis distances by a full precision matrix."""

    def __init__(self, dim: int, heads: int, grid: tuple[int, int]) -> None:
        super().__init__(dim, heads, grid)
        p, k, m = self.mixture.mean.shape
        self.factor = nn.Parameter(torch.randn(p, k, m, m) * 0.4 + torch.eye(m))

    def responsibilities(self, x: Tensor) -> Tensor:
        whitened = torch.einsum("bnpkm,pkmc->bnpkc", x[:, :, :, None, :] - self.mixture.mean, self.factor)
        return torch.softmax(-0.5 * (whitened**2).sum(-1), dim=-1)


class DotProduct(nn.Module):
    """Ordinary attention, which nothing should be said about."""

    def __init__(self, dim: int, heads: int, _grid: tuple[int, int]) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        share = torch.softmax(q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5, dim=-1)
        return torch.as_tensor(self.proj((share @ v).transpose(1, 2).reshape(b, n, c)))
