"""What somebody writes who has no operator of ours: both attentions as the papers' formulas in einsums, nothing more."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor


def filtered(value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> Tensor:
    """`SeparableGaussianFilter`: value [B, H, W, P, D], a steered field [B, H, W, P, R, 2] and [B, H, W, P, R]."""
    H, W = value.shape[1:3]
    down = torch.arange(H)[:, None] - torch.arange(H)[None, :]
    across = torch.arange(W)[:, None] - torch.arange(W)[None, :]
    row = _gaussian(down[:, None, None, None, :], offset[..., 0], width[..., 0])  # [B, I, K, P, R, J]
    column = _gaussian(across[None, :, None, None, :], offset[..., 1], width[..., 1])  # [B, I, W, P, R, K]
    rows = torch.einsum("bikprj,bjkpd->bikprd", row, value)
    columns = torch.einsum("biwprk,bikprd->biwprd", column, rows)
    return torch.einsum("biwpr,biwprd->biwpd", weight, columns)


def _gaussian(distance: Tensor, offset: Tensor, width: Tensor) -> Tensor:
    return torch.softmax(-((distance - offset[..., None]) ** 2) / (2 * width[..., None] ** 2), dim=-1)


def routed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_prior: Tensor,
    _key_mask: Tensor | None = None,
    epsilon: float = 1e-6,
    _causal: bool = False,
) -> Tensor:
    """`LatentMemoryRouting` in both directions: query, key [B, N, P, dr], value [B, N, P, dv], mixture [P, K, dr]."""

    def responsibilities(x: Tensor) -> Tensor:
        square = (x[..., None, :] - mean) ** 2 / variance + torch.log(2 * torch.pi * variance)
        return torch.softmax(log_prior - square.sum(-1) / 2, dim=-1)  # [B, N, P, K]

    written, read = responsibilities(key), responsibilities(query)
    memory = torch.einsum("bnpk,bnpv->bpkv", written, value)
    mass = torch.einsum("bnpk,bpk->bnp", read, written.sum(1))
    return torch.einsum("bnpk,bpkv->bnpv", read, memory) / (mass + epsilon)[..., None]


@contextmanager
def plain_attention() -> Iterator[None]:
    """Within it our modules compute with these formulas instead of our operators."""
    package = "gaussport.models.attention"
    with (
        mock.patch(f"{package}.ssog.separable_gaussian_filter", filtered),
        mock.patch(f"{package}.gma.latent_memory_routing", routed),
    ):
        yield
