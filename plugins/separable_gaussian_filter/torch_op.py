"""`gaussport::separable_gaussian_filter` for PyTorch: forward, analytic backward, meta kernel.

Both passes are matrix products over filters made from μ and σ. `einsum` folds the axes that a fixed field lacks
(b = h = w = 1) into the product's free side, so such a field is never expanded. Heads, images that have fields of their own,
and rows of a steered field share nothing but the values: where their filters are many they are taken a few at a time, which
bounds memory and keeps to the cache. Only operands are saved for backward; filters and the row pass are made again there.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import threshold

from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR
from gaussport.plugins.torch_operands import (
    check_operands,
    check_positive,
    computing_dtype,
    has_triton,
    log_fallback,
    with_leading,
)

LEAST_LOG = -60.0
"""Exponents end here: exp(−60) is 2⁻⁸⁶ of the nearest cell's weight, which no sum can show. Smaller ones would become
subnormal numbers, with which exponentials and products take tens of times as long."""

MOST_WEIGHTS = 1 << 20
"""Filter weights of both directions made at a time, four megabytes in float32: eight images and heads of a 14×14 grid with
four atoms, or half a head of a 64×64 one."""

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
    return _in_torch(value, offset, width, weight)


@separable_gaussian_filter.register_kernel("cuda")
def on_gpu(value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> Tensor:
    """On a GPU: the Triton kernels, or plain torch where they do not serve (float64) or Triton is not installed."""
    check_operands(OPERATOR, [value, offset, width, weight])
    check_positive(OPERATOR, "width", width)
    if not has_triton():
        log_fallback(f"{OPERATOR.name}: triton is not installed")
        return _in_torch(value, offset, width, weight)
    from gaussport.plugins.separable_gaussian_filter import triton_launch

    reason = triton_launch.refusal(value.dtype)
    if reason is None:
        return triton_launch.run(value, offset, width, weight)
    log_fallback(reason)
    return _in_torch(value, offset, width, weight)


def _in_torch(value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> Tensor:
    dtype = computing_dtype(value)
    parts = _parts([value.to(dtype), offset.to(dtype), width.to(dtype), weight.to(dtype)])
    return _whole([_output(*part) for part in heads] for heads in parts).to(value.dtype).contiguous()


@separable_gaussian_filter.register_fake
def _(value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> Tensor:
    check_operands(OPERATOR, [value, offset, width, weight])
    return value.new_empty(value.shape)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, ...]:
    operands: tuple[Tensor, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
    dtype = computing_dtype(operands[0])
    parts = _parts([*(operand.to(dtype) for operand in operands), gradient.to(dtype)])
    gradients = [[_gradients(*part) for part in heads] for heads in parts]
    joined = (_whole([part[n] for part in heads] for heads in gradients) for n in range(len(operands)))
    return tuple(g.to(operand.dtype) for g, operand in zip(joined, operands, strict=True))


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


def _parts(tensors: Sequence[Tensor]) -> list[list[list[Tensor]]]:
    """value, offset, width, weight and whatever else has their batch and heads, as a grid of parts: images by heads."""
    value, offset, _, weight, *_ = tensors
    H, W = value.shape[1:3]
    per_head = offset.shape[1] * offset.shape[2] * weight.shape[-1] * (H + W)
    own_fields = offset.shape[0] == value.shape[0]
    images = max(1, MOST_WEIGHTS // per_head) if own_fields else value.shape[0]
    heads = max(1, MOST_WEIGHTS // (per_head * min(images, offset.shape[0])))
    by_image = zip(*(x.split(images) for x in tensors), strict=True)
    return [[list(part) for part in zip(*(x.split(heads, 3) for x in few), strict=True)] for few in by_image]


def _output(value: Tensor, *field: Tensor) -> Tensor:
    """The output of some images and heads, by a few rows of the field at a time."""
    rows = [_Filters(first, value, *few).output() for first, few in _rows(field)]
    return rows[0] if len(rows) == 1 else torch.cat(rows, 1)


def _gradients(value: Tensor, *field_and_gradient: Tensor) -> tuple[Tensor, ...]:
    """Gradients of value, offset, width and weight of some images and heads, by a few rows of the field at a time."""
    of_value, of_field = None, []
    for first, (*field, gradient) in _rows(field_and_gradient):
        from_rows, *of_rows = _Filters(first, value, *field).gradients(gradient)
        of_value = from_rows if of_value is None else of_value + from_rows
        of_field.append(of_rows)
    assert of_value is not None
    return of_value, *(torch.cat(few, 1) for few in zip(*of_field, strict=True))


def _rows(tensors: Sequence[Tensor]) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """First row, and offset, width, weight and whatever else has rows, for a few rows of a steered field at a time."""
    weight = tensors[2]
    batch, H, W, P, R = weight.shape
    rows = H if (H, W) == (1, 1) else max(1, MOST_WEIGHTS // (batch * W * P * R * (H + W)))
    firsts = range(0, H, rows)
    if len(firsts) == 1:
        return iter([(0, tuple(tensors))])
    return zip(firsts, zip(*(x.split(rows, 1) for x in tensors), strict=True), strict=True)


def _whole(parts: Iterable[Sequence[Tensor]]) -> Tensor:
    """What `_parts` took apart."""
    rows = [heads[0] if len(heads) == 1 else torch.cat(tuple(heads), 3) for heads in parts]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


class _Filters:
    """The two filters of a field, laid out for batched matrix products, and the products with them.

    Equation letters: b batch, p head, d width; i, w row and column of the query; c column of the intermediate token;
    j row that is summed over; m atoms times cells.
    """

    def __init__(self, first: int, value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> None:
        """A steered field's offset, width and weight may be those of a few rows only, the first of which is `first`."""
        _, H, W, _, _ = value.shape
        self.steered = tuple(value.shape[1:3]) == (1, 1) or tuple(offset.shape[1:3]) != (1, 1)
        rows = offset.shape[1] if self.steered else H
        self.sizes = (rows, W, weight.shape[-1])
        self.batch = "b" if offset.shape[0] == value.shape[0] else ""
        self.value = value.permute(0, 2, 3, 1, 4)  # [B, W, P, H, D]
        self.weight = weight.permute(0, 1, 3, 2, 4)  # [b, h, P, w, R]
        row_field = (x[..., 0].permute(0, 2, 3, 1, 4) for x in (offset, width))
        col_field = (x[..., 1].permute(0, 1, 3, 2, 4) for x in (offset, width))
        self.row = _Gaussian(range(first, first + rows), H, *row_field)
        self.col = _Gaussian(range(W), W, *col_field)
        self.row_matrix = self.row.filters.flatten(3, 4)  # [b, w, P, H·R, H]
        self.col_matrix = (self.weight[..., None] * self.col.filters).flatten(4)  # [b, h, P, W, R·W]

    def filtered(self) -> Tensor:
        """The row pass, by the steering of the intermediate token, as the column pass reads it: [B, H, P, R·W, D]."""
        H, _, R = self.sizes
        passed = torch.einsum("bcpmj,bcpjd->bcpmd", self.row_matrix, self.value)
        return torch.as_tensor(passed.unflatten(3, (H, R)).permute(0, 3, 2, 4, 1, 5).flatten(3, 4))

    def output(self) -> Tensor:
        return torch.einsum("bipwm,bipmd->biwpd", self.col_matrix, self.filtered())

    def gradients(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of value, offset, width, weight for the output's gradient [B, H, W, P, D]."""
        _, W, R = self.sizes
        gradient = gradient.permute(0, 1, 3, 2, 4)  # [B, H, P, W, D]
        by_query = f"bipwd,bipmd->{self.batch}{'i' if self.steered else ''}pwm"
        d_col = torch.einsum(by_query, gradient, self.filtered()).reshape(self.col.filters.shape)
        d_weight = (self.col.filters * d_col).sum(-1)  # [b, h, P, W, R]

        d_filtered = torch.einsum("bipwm,bipwd->bipmd", self.col_matrix, gradient)
        d_passed = d_filtered.unflatten(3, (R, W)).permute(0, 4, 2, 1, 3, 5).flatten(3, 4)  # [B, W, P, H·R, D]
        d_value = torch.einsum("bcpmj,bcpmd->bjcpd", self.row_matrix, d_passed)
        by_column = f"bcpmd,bcpjd->{self.batch}{'c' if self.steered else ''}pmj"
        d_row = torch.einsum(by_column, d_passed, self.value).reshape(self.row.filters.shape)

        row = [x.permute(0, 3, 1, 2, 4) for x in self.row.gradients(d_row)]  # [b, h, w, P, R] each
        col = [x.permute(0, 1, 3, 2, 4) for x in self.col.gradients(self.weight[..., None] * d_col)]
        d_offset, d_width = (torch.stack(pair, dim=-1) for pair in zip(row, col, strict=True))
        d_weight = d_weight.sum_to_size(self.weight.shape).permute(0, 1, 3, 2, 4)
        return d_value, d_offset, d_width, d_weight


class _Gaussian:
    """softmax over cells of −(distance − μ)² / 2σ² for each query along one axis: `filters` [·, ·, P, L, R, cells].

    With j* the cell nearest to query − μ, the exponent less its maximum is −step·(step + 2·excess) / 2σ², where step is
    j* − j, an exact integer, and excess is query − j* − μ: nothing cancels when μ lies far outside the grid. It is 0 at j*
    whatever σ is, since 1/σ² is bounded, and negative elsewhere, so that the sum of exponentials is at least 1. Cells whose
    weight is below exp(LEAST_LOG + 1) of the nearest one's are left out.
    """

    def __init__(self, queries: range, cells: int, mu: Tensor, sigma: Tensor) -> None:
        """`mu` and `sigma` are [·, ·, P, l, R] with l = L, the number of queries, or, for a fixed field, 1."""
        self.queries, self.cells, self.mu, self.sigma = queries, cells, mu, sigma
        unnormalised = threshold(self._step_and_log()[1].exp(), math.exp(LEAST_LOG + 1), 0.0)
        self.filters = unnormalised / unnormalised.sum(-1, keepdim=True)

    def _step_and_log(self) -> tuple[Tensor, Tensor]:
        """j* − j and the exponent, both [·, ·, P, L, R, cells]; made again for the gradients instead of kept."""
        cell = torch.arange(self.cells, device=self.mu.device, dtype=self.mu.dtype)
        query = torch.arange(self.queries.start, self.queries.stop, device=self.mu.device, dtype=self.mu.dtype)[:, None]
        nearest = (query - self.mu.detach().round()).clamp(0, self.cells - 1)  # query − μ would be rounded before it is
        excess = query - nearest - self.mu
        factor = -0.5 / self.sigma.square().clamp(min=LEAST_VARIANCE)
        step = nearest[..., None] - cell
        return step, (step * (step + 2 * excess[..., None]) * factor[..., None]).clamp(min=LEAST_LOG)

    def gradients(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of μ and σ: Σ a·(g − Σ a·g)·∂l, with ∂l/∂μ = step/σ² (up to a constant that softmax does not see) and
        ∂l/∂σ = −2l/σ."""
        step, log = self._step_and_log()
        centred = self.filters * (gradient - (self.filters * gradient).sum(-1, keepdim=True))
        d_mu = (centred * step).sum(-1) / self.sigma / self.sigma
        d_sigma = -2 * (centred * log).sum(-1) / self.sigma
        return d_mu.sum_to_size(self.sigma.shape), d_sigma.sum_to_size(self.sigma.shape)
