"""SSOG by other hands: fixed and steered fields, written as einsums, as batched matrix products, with explicit sums."""

import math
from typing import Any

import torch
from torch import Tensor, nn


class Field(nn.Module):
    """The parameters of a field: μ, σ, λ per head and atom, and the probes of a steered one."""

    def __init__(self, dim: int, heads: int, atoms: int, steered: bool) -> None:
        super().__init__()
        self.heads, self.atoms, self.steered = heads, atoms, steered
        self.mu = nn.Parameter(torch.randn(heads, atoms, 2))
        self.raw_sigma = nn.Parameter(torch.randn(heads, atoms, 2) * 0.3)
        self.log_lambda = nn.Parameter(torch.randn(heads, atoms) * 0.5)
        if steered:
            self.mu_delta = nn.Linear(dim, heads * atoms * 2)
            self.sigma_delta = nn.Linear(dim, heads * atoms * 2)
            self.lambda_gate = nn.Linear(dim, heads * atoms)

    def sigma(self) -> Tensor:
        return nn.functional.softplus(self.raw_sigma) + 0.3


class EinsumSteered(nn.Module):
    """Three einsums over [b, h, w, …]; filters by softmax of the scaled squared distance."""

    def __init__(self, dim: int, heads: int, grid: tuple[int, int], atoms: int = 3) -> None:
        super().__init__()
        self.grid, self.field = grid, Field(dim, heads, atoms, steered=True)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def steer(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f, (h, w) = self.field, self.grid
        b = x.shape[0]
        mu = f.mu + 4.0 * torch.tanh(f.mu_delta(x)).reshape(b, h, w, f.heads, f.atoms, 2)
        sigma = f.sigma() * torch.exp(0.5 * torch.tanh(f.sigma_delta(x))).reshape(b, h, w, f.heads, f.atoms, 2)
        gate = torch.tanh(f.lambda_gate(x)).reshape(b, h, w, f.heads, f.atoms)
        return mu, sigma, torch.softmax(f.log_lambda + gate, dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        h, w = self.grid
        b, n, c = x.shape
        v = self.to_v(x).reshape(b, h, w, self.field.heads, -1)
        mu, sigma, lam = self.steer(x)
        return torch.as_tensor(self.proj(self.mix(v, mu, sigma, lam).reshape(b, n, c)))

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        dy = torch.arange(h)[:, None] - torch.arange(h)[None, :]
        dx = torch.arange(w)[:, None] - torch.arange(w)[None, :]
        row = self.gaussian(dy[:, None, None, None, :], mu[..., 0], sigma[..., 0])
        col = self.gaussian(dx[None, :, None, None, :], mu[..., 1], sigma[..., 1])
        u = torch.einsum("bikprj,bjkpd->bikprd", row, v)
        t = torch.einsum("biwprk,bikprd->biwprd", col, u)
        return torch.einsum("biwpr,biwprd->biwpd", lam, t)

    def gaussian(self, distance: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
        score = -((distance - mu[..., None]) ** 2) / (2 * sigma[..., None] ** 2)
        return torch.softmax(score, dim=-1)


class EinsumFixed(nn.Module):
    """The same with one field for all tokens; kernels [p, r, i, j] are made in forward, where exporters may fold them."""

    def __init__(self, dim: int, heads: int, grid: tuple[int, int], atoms: int = 3) -> None:
        super().__init__()
        self.grid, self.field = grid, Field(dim, heads, atoms, steered=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def kernel(self, size: int, axis: int) -> Tensor:
        cells = torch.arange(size, dtype=torch.float32)
        d = cells[:, None] - cells[None, :]
        mu, sigma = self.field.mu[..., axis, None, None], self.field.sigma()[..., axis, None, None]
        k = torch.exp(-0.5 * ((d - mu) / sigma) ** 2)
        return k / k.sum(-1, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        h, w = self.grid
        b, n, c = x.shape
        p = self.field.heads
        v = self.to_v(x).reshape(b, h, w, p, c // p).permute(0, 3, 1, 2, 4)
        lam = torch.softmax(self.field.log_lambda, -1)
        u = torch.einsum("prij,bpjkd->bprikd", self.kernel(h, 0), v)
        t = torch.einsum("prwk,bprikd->bpriwd", self.kernel(w, 1), u)
        out = torch.einsum("pr,bpriwd->bpiwd", lam, t)
        return torch.as_tensor(self.proj(out.permute(0, 2, 3, 1, 4).reshape(b, n, c)))


class MatmulFixed(EinsumFixed):
    """Kernels as buffers-like products: λ folded into the column kernel, both passes as one batched matmul each."""

    def forward(self, x: Tensor) -> Tensor:
        h, w = self.grid
        b, n, c = x.shape
        p, r = self.field.heads, self.field.atoms
        d = c // p
        rows = self.kernel(h, 0).reshape(p, r * h, h)
        cols = self.kernel(w, 1) * torch.softmax(self.field.log_lambda, -1)[..., None, None]
        cols = cols.transpose(1, 2).reshape(p, w, r * w)  # [p, w, (r, k)]
        v = self.to_v(x).reshape(b, h, w, p, d).permute(0, 3, 1, 2, 4).reshape(b, p, h, w * d)
        u = (rows @ v).reshape(b, p, r, h, w, d)
        u = u.permute(0, 1, 3, 2, 4, 5).reshape(b, p, h, r * w, d)
        out = cols[:, None] @ u  # [b, p, h, w, d]
        return torch.as_tensor(self.proj(out.permute(0, 2, 3, 1, 4).reshape(b, n, c)))


class MatmulSteered(EinsumSteered):
    """The centre and a precision instead of μ and σ, filters by exp over a sum with the maximum taken off, matmul passes."""

    def gaussian(self, distance: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
        precision = 1.0 / (sigma * sigma)
        score = -0.5 * (distance - mu[..., None]).square() * precision[..., None]
        weight = torch.exp(score - score.amax(-1, keepdim=True))
        return weight / weight.sum(-1, keepdim=True)

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        b, _, _, p, d = v.shape
        r = lam.shape[-1]
        mu, sigma = mu.permute(0, 3, 1, 2, 4, 5), sigma.permute(0, 3, 1, 2, 4, 5)  # [b, p, h, w, r, 2]
        cells = torch.arange(h, dtype=v.dtype)
        row = self.gaussian((cells[:, None] - cells)[:, None, None], mu[..., 0], sigma[..., 0])  # [b, p, i, k, r, j]
        cells = torch.arange(w, dtype=v.dtype)
        col = self.gaussian((cells[:, None] - cells)[:, None], mu[..., 1], sigma[..., 1])  # [b, p, i, w, r, k]
        row = row.permute(0, 1, 3, 2, 4, 5).reshape(b * p * w, h * r, h)
        u = torch.bmm(row, v.permute(0, 3, 2, 1, 4).reshape(b * p * w, h, d))
        u = u.reshape(b, p, w, h, r, d).permute(0, 1, 3, 4, 2, 5).reshape(b * p * h, r * w, d)
        col = col * lam.permute(0, 3, 1, 2, 4)[..., None]
        out = torch.bmm(col.reshape(b * p * h, w, r * w), u).reshape(b, p, h, w, d)
        return out.permute(0, 2, 3, 1, 4)


class CentreSteered(EinsumSteered):
    """The query's own coordinates carry μ: centre = query − μ, then distance to a row of cells; sums instead of einsums."""

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        ys, xs = torch.arange(h, dtype=v.dtype), torch.arange(w, dtype=v.dtype)
        cy = ys.view(1, h, 1, 1, 1) - mu[..., 0]
        cx = xs.view(1, 1, w, 1, 1) - mu[..., 1]
        row = torch.softmax(-(((cy[..., None] - ys) / (math.sqrt(2) * sigma[..., 0, None])) ** 2), -1)
        col = torch.softmax(-(((xs - cx[..., None]) / (math.sqrt(2) * sigma[..., 1, None])) ** 2), -1)
        u = torch.einsum("bikprj,bjkpd->bprikd", row, v)
        mixed = torch.einsum("biwprk,bprikd->bpriwd", col * lam[..., None], u)
        return mixed.sum(2).permute(0, 2, 3, 1, 4)


class Expanded(EinsumSteered):
    """The square multiplied out, as those write who want one fused multiply-add: −(d² − 2dμ + μ²) / 2σ²."""

    def gaussian(self, distance: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
        d, m = distance.float(), mu[..., None]
        return torch.softmax((2 * d * m - d * d - m * m) * (0.5 / sigma.pow(2))[..., None], dim=-1)


class ColumnsFirst(EinsumSteered):
    """The other order of the passes: columns by the intermediate token, rows by the query. The same operator, turned."""

    def mix(self, v: Tensor, mu: Tensor, sigma: Tensor, lam: Tensor) -> Tensor:
        h, w = self.grid
        dy = torch.arange(h)[:, None] - torch.arange(h)[None, :]
        dx = torch.arange(w)[:, None] - torch.arange(w)[None, :]
        row = self.gaussian(dy[:, None, None, None, :], mu[..., 0], sigma[..., 0])
        col = self.gaussian(dx[None, :, None, None, :], mu[..., 1], sigma[..., 1])
        u = torch.einsum("bjwprk,bjkpd->bjwprd", col, v)
        t = torch.einsum("biwprj,bjwprd->biwprd", row, u)
        return torch.einsum("biwpr,biwprd->biwpd", lam, t)


STYLES: dict[str, Any] = {
    style.__name__: style
    for style in (EinsumSteered, EinsumFixed, MatmulFixed, MatmulSteered, CentreSteered, Expanded, ColumnsFirst)
}
