"""`gaussport::separable_gaussian_filter` for PyTorch: forward, analytic backward, meta kernel.

Both passes are matrix products over filters made from μ and σ. `einsum` folds the axes that a fixed field lacks
(b = h = w = 1) into the product's free side, so such a field is never expanded. Only the operands are saved for
backward; filters and the row pass are made again there, which keeps the peak at one [B, H, W, P, R, D] array.
"""

from typing import Any

import torch
from torch import Tensor

from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR
from gaussport.plugins.torch_operands import check_operands, check_positive, computing_dtype, with_leading

LEAST_VARIANCE = 1e-36  # in cells²; far below what would move the nearest cell's weight from 1, and finite when inverted


@torch.library.custom_op(OPERATOR.torch_name, mutates_args=())
def separable_gaussian_filter(value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> Tensor:
    """Filter `value` [B, H, W, P, D] by R separable Gaussian atoms per head and mix them; see `definition`.

    Args:
        offset, width: μ and σ > 0 in grid cells, [b, h, w, P, R, 2]; b is 1 or B, (h, w) is (1, 1) or (H, W).
        weight: λ, [b, h, w, P, R].

    Returns:
        [B, H, W, P, D] in value's dtype; float16 and bfloat16 are computed in float32.

    Raises:
        ValueError: shapes, dtypes or devices disagree, or a width is not positive.
    """
    check_operands(OPERATOR, [value, offset, width, weight])
    check_positive(OPERATOR, "width", width)
    dtype = computing_dtype(value)
    filters = _Filters(value.to(dtype), offset.to(dtype), width.to(dtype), weight.to(dtype))
    return filters.output().to(value.dtype).contiguous()


@separable_gaussian_filter.register_fake
def _(value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> Tensor:
    check_operands(OPERATOR, [value, offset, width, weight])
    return value.new_empty(value.shape)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, ...]:
    operands: tuple[Tensor, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
    dtype = computing_dtype(operands[0])
    filters = _Filters(*(operand.to(dtype) for operand in operands))
    gradients = filters.gradients(gradient.to(dtype))
    return tuple(g.to(operand.dtype) for g, operand in zip(gradients, operands, strict=True))


separable_gaussian_filter.register_autograd(_backward, setup_context=_save)


@separable_gaussian_filter.register_vmap
def _vmap(info: Any, in_dims: tuple[int | None, ...], *operands: Tensor) -> tuple[Tensor, int]:
    """The mapped axis joins the batch; a field that is one for the batch and not mapped stays one field for all."""
    value, *field = (with_leading(x, axis, info.batch_size) for x, axis in zip(operands, in_dims, strict=True))
    batch = value.shape[1]
    if any(axis is not None for axis in in_dims[1:]) or field[0].shape[1] != 1:
        field = [x.expand(-1, batch, *x.shape[2:]).flatten(0, 1) for x in field]
    else:
        field = [x[0] for x in field]
    return separable_gaussian_filter(value.flatten(0, 1), *field).unflatten(0, (-1, batch)), 0


class _Filters:
    """The two filters of a field and the products with them. Equation letters: b i k/w p d as in OPS, r atoms,
    j and c the row and column that are summed over."""

    def __init__(self, value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> None:
        self.value, self.offset, self.width, self.weight = value, offset, width, weight
        _, H, W, _, _ = value.shape
        row = torch.arange(H, device=value.device, dtype=value.dtype)
        column = torch.arange(W, device=value.device, dtype=value.dtype)
        self.row_step, self.row_excess = _from_nearest(row.view(H, 1, 1, 1), row, offset[..., 0])
        self.col_step, self.col_excess = _from_nearest(column.view(W, 1, 1), column, offset[..., 1])
        self.row = _gaussian(self.row_step, self.row_excess, width[..., 0])  # [b, H, w, P, R, H]
        self.col = _gaussian(self.col_step, self.col_excess, width[..., 1])  # [b, h, W, P, R, W]

    def filtered(self) -> Tensor:
        """The row pass [B, H, W, P, R, D], by the steering of the intermediate token (i, c)."""
        return torch.einsum("bicprj,bjcpd->bicprd", self.row, self.value)

    def output(self) -> Tensor:
        return torch.einsum("biwprc,bicprd->biwpd", self.weight[..., None] * self.col, self.filtered())

    def gradients(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of value, offset, width, weight for the output's gradient [B, H, W, P, D]."""
        batch = "b" if self.offset.shape[0] == self.value.shape[0] else ""
        steered = self.offset.shape[1:3] == self.value.shape[1:3]
        mixed = torch.einsum(f"biwpd,bicprd->{batch}{'i' if steered else ''}wprc", gradient, self.filtered())
        mixed = mixed.reshape(self.col.shape)
        d_weight = (self.col * mixed).sum(-1)  # [b, h, W, P, R]
        d_col = self.weight[..., None] * mixed

        d_filtered = torch.einsum("biwprc,biwpd->bicprd", self.weight[..., None] * self.col, gradient)
        d_value = torch.einsum("bicprj,bicprd->bjcpd", self.row, d_filtered)
        d_row = torch.einsum(f"bicprd,bjcpd->{batch}i{'c' if steered else ''}prj", d_filtered, self.value)
        d_row = d_row.reshape(self.row.shape)

        row_mu, row_sigma = _gaussian_gradients(self.row, d_row, self.row_step, self.row_excess, self.width[..., 0])
        col_mu, col_sigma = _gaussian_gradients(self.col, d_col, self.col_step, self.col_excess, self.width[..., 1])
        field = self.offset.shape[:-1]
        d_offset = torch.stack([row_mu.sum_to_size(field), col_mu.sum_to_size(field)], dim=-1)
        d_width = torch.stack([row_sigma.sum_to_size(field), col_sigma.sum_to_size(field)], dim=-1)
        return d_value, d_offset, d_width, d_weight.sum_to_size(field)


def _from_nearest(query: Tensor, cells: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """For each query and atom: every cell's distance less the nearest cell's (last axis: cells), and nearest − μ."""
    nearest = (query - mu).detach().round().clamp(0, cells.shape[0] - 1)  # the cell on which the atom is centred
    return nearest[..., None] - cells, query - nearest - mu


def _gaussian(step: Tensor, excess: Tensor, sigma: Tensor) -> Tensor:
    """softmax over the last axis of −(distance − μ)² / 2σ², see `_log_gaussian`."""
    return torch.softmax(_log_gaussian(step, excess, sigma), dim=-1)


def _log_gaussian(step: Tensor, excess: Tensor, sigma: Tensor) -> Tensor:
    """−((distance − μ)² − (nearest − μ)²) / 2σ², factored as −step · (step + 2·excess) / 2σ².

    `step` is distance − nearest, an exact integer, and `excess` is nearest − μ, so that nothing cancels when μ lies far
    outside the grid. It is 0 at the nearest cell whatever σ is: 1/σ² is bounded, so it never makes 0 · ∞.
    """
    factor = -0.5 / sigma.square().clamp(min=LEAST_VARIANCE)
    return step * (step + 2 * excess[..., None]) * factor[..., None]


def _gaussian_gradients(
    filters: Tensor, gradient: Tensor, step: Tensor, excess: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of μ and σ through softmax: Σ a·(g − Σ a·g)·∂l, with ∂l/∂μ = step/σ² (up to a constant that softmax
    does not see) and ∂l/∂σ = −2l/σ."""
    centred = filters * (gradient - (filters * gradient).sum(-1, keepdim=True))
    d_mu = (centred * step).sum(-1) / sigma / sigma
    finite = _log_gaussian(step, excess, sigma).clamp(min=-1e30)  # where it is −∞ the filter is 0, and 0 · ∞ is not
    d_sigma = -2 * (centred * finite).sum(-1) / sigma
    return d_mu, d_sigma
