"""`gaussport::latent_memory_routing` for PyTorch: forward, analytic backward, meta kernel.

Write and read are one linear product Γ_Q (Γ_Kᵀ [V, 1]); its gradients are three more products of the same kind, so
forward and backward share `memory_product`, which is where causal order lives.
"""

import math
from typing import Any

import torch
from torch import Tensor

from gaussport.plugins.latent_memory_routing.memory_product import memory_product
from gaussport.plugins.latent_memory_routing.schema import OPERATOR
from gaussport.plugins.torch_operands import (
    check_operands,
    check_positive,
    computing_dtype,
    has_triton,
    log_fallback,
    with_leading,
)


@torch.library.custom_op(OPERATOR.torch_name, mutates_args=())
def latent_memory_routing(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_prior: Tensor,
    key_mask: Tensor | None = None,
    epsilon: float = 1e-6,
    causal: bool = False,
) -> Tensor:
    """Write values to K slots by the keys' responsibilities and read them by the queries'; see `definition`.

    Args:
        query, key: [B, N, P, dr].
        value: [B, N, P, dv].
        mean, variance: [P, K, dr], variance > 0.
        log_prior: [P, K], normalised.
        key_mask: [B, N]; 0 keeps a padded token out of the memory.

    Returns:
        [B, N, P, dv] in value's dtype; float16 and bfloat16 are computed in float32.

    Raises:
        ValueError: shapes, dtypes or devices disagree, or a variance is not positive.
    """
    check_operands(OPERATOR, [query, key, value, mean, variance, log_prior, key_mask])
    check_positive(OPERATOR, "variance", variance)
    return in_torch(query, key, value, mean, variance, log_prior, key_mask, epsilon, causal)


@latent_memory_routing.register_kernel("cuda")
def on_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_prior: Tensor,
    key_mask: Tensor | None = None,
    epsilon: float = 1e-6,
    causal: bool = False,
) -> Tensor:
    """On a GPU: the Triton kernels, or plain torch where they do not serve (float64, mixtures too large for the chip) or
    Triton is not installed."""
    operands = (query, key, value, mean, variance, log_prior, key_mask)
    check_operands(OPERATOR, operands)
    check_positive(OPERATOR, "variance", variance)
    if not has_triton():
        log_fallback(f"{OPERATOR.name}: triton is not installed")
        return in_torch(*operands, epsilon, causal)
    from gaussport.plugins.latent_memory_routing import triton_launch

    reason = triton_launch.refusal(mean.shape[1], mean.shape[2], value.dtype)
    if reason is None:
        return triton_launch.run(*operands, epsilon, causal)
    log_fallback(reason)
    return in_torch(*operands, epsilon, causal)


def in_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_prior: Tensor,
    key_mask: Tensor | None,
    epsilon: float,
    causal: bool,
) -> Tensor:
    """The operator as a composition of torch's own. Differentiated by torch it keeps more for the backward pass than the
    operator does, which computes everything again, and takes about half the time on a processor."""
    dtype = computing_dtype(value)
    query, key, wide_value, *mixture = (x.to(dtype) for x in (query, key, value, mean, variance, log_prior))
    read, write = responsibilities(query, *mixture), responsibilities(key, *mixture)
    if key_mask is not None:
        write = write * key_mask.to(dtype)[:, :, None, None]
    product = memory_product(read, write, _with_ones(wide_value), causal)
    return (product[..., :-1] / (product[..., -1:] + epsilon)).to(value.dtype).contiguous()


@latent_memory_routing.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_prior: Tensor,
    key_mask: Tensor | None = None,
    epsilon: float = 1e-6,
    causal: bool = False,
) -> Tensor:
    check_operands(OPERATOR, [query, key, value, mean, variance, log_prior, key_mask])
    return value.new_empty(value.shape)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: Tensor) -> None:
    *operands, ctx.epsilon, ctx.causal = inputs  # type: ignore[attr-defined]
    ctx.save_for_backward(*operands)  # type: ignore[arg-type]


def _backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
    *operands, key_mask = ctx.saved_tensors  # type: ignore[attr-defined]
    epsilon, causal = ctx.epsilon, ctx.causal  # type: ignore[attr-defined]
    dtype = computing_dtype(operands[2])
    query, key, value, *mixture = (x.to(dtype) for x in operands)
    read, write = responsibilities(query, *mixture), responsibilities(key, *mixture)
    mask = None if key_mask is None else key_mask.to(dtype)[:, :, None, None]
    masked = write if mask is None else write * mask
    extended = _with_ones(value)

    product = memory_product(read, masked, extended, causal)
    mass = product[..., -1:] + epsilon
    d_numerator = gradient.to(dtype) / mass
    d_product = torch.cat([d_numerator, -(d_numerator * product[..., :-1] / mass).sum(-1, keepdim=True)], dim=-1)

    d_read = memory_product(d_product, extended, masked, causal)
    d_write = memory_product(extended, d_product, read, causal, reverse=True)
    d_value = memory_product(masked, read, d_product, causal, reverse=True)[..., :-1]
    d_mask = None if mask is None else (d_write * write).sum((2, 3)).to(key_mask.dtype)
    d_query, from_query = _mixture_gradients(query, read, d_read, *mixture)
    d_key, from_key = _mixture_gradients(key, write, d_write if mask is None else d_write * mask, *mixture)
    d_mixture = (q + k for q, k in zip(from_query, from_key, strict=True))
    gradients = (g.to(x.dtype) for g, x in zip((d_query, d_key, d_value, *d_mixture), operands, strict=True))
    return (*gradients, d_mask, None, None)


latent_memory_routing.register_autograd(_backward, setup_context=_save)


@latent_memory_routing.register_vmap
def _vmap(
    info: Any,
    in_dims: tuple[int | None, ...],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_prior: Tensor,
    key_mask: Tensor | None = None,
    *attributes: Any,
) -> tuple[Tensor, int]:
    """The mapped axis of tokens joins the batch. Where each has a mixture of its own, they are routed one after another."""
    given = [query, key, value, mean, variance, log_prior] + ([] if key_mask is None else [key_mask])
    tensors = [with_leading(x, axis, info.batch_size) for x, axis in zip(given, in_dims, strict=False)]
    if any(axis is not None for axis in in_dims[3:6]):
        each = ([x[n] for x in tensors] for n in range(info.batch_size))
        return torch.stack([_routed(own, attributes) for own in each]), 0
    folded = [x.flatten(0, 1) if n not in (3, 4, 5) else x[0] for n, x in enumerate(tensors)]
    return _routed(folded, attributes).unflatten(0, (info.batch_size, -1)), 0


def _routed(tensors: list[Tensor], attributes: tuple[Any, ...]) -> Tensor:
    mask = tensors[6] if len(tensors) > 6 else None
    return torch.as_tensor(latent_memory_routing(*tensors[:6], mask, *attributes))


def responsibilities(x: Tensor, mean: Tensor, variance: Tensor, log_prior: Tensor) -> Tensor:
    """Γ [B, N, P, K] of x [B, N, P, dr]: softmax over components of log π + log N(x; mean, variance).

    The square is expanded into two matrix products. Tokens and means are first shifted by the head's mean of means,
    which bounds the cancellation by the spread of the mixture instead of its distance from the origin.
    """
    centre = mean.mean(1)  # [P, dr]
    x, mean = x - centre, mean - centre[:, None]
    precision = variance.reciprocal()
    constant = log_prior - 0.5 * ((2 * math.pi * variance).log() + mean.square() * precision).sum(-1)
    features = torch.cat([x.square(), x], dim=-1)  # [B, N, P, 2·dr]
    weights = torch.cat([-0.5 * precision, mean * precision], dim=-1)  # [P, K, 2·dr]
    weights = weights - weights.mean(1, keepdim=True)
    return torch.softmax(torch.einsum("bnpm,pkm->bnpk", features, weights) + constant, dim=-1)


def _mixture_gradients(
    x: Tensor, shares: Tensor, d_shares: Tensor, mean: Tensor, variance: Tensor, log_prior: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Gradients of x and of (mean, variance, log_prior) through the softmax and the log densities."""
    centre = mean.mean(1)
    x, mean = x - centre, mean - centre[:, None]
    precision = variance.reciprocal()
    d_score = shares * (d_shares - (shares * d_shares).sum(-1, keepdim=True))  # [B, N, P, K]
    d_x = torch.einsum("bnpk,pkm->bnpm", d_score, mean * precision)
    d_x = d_x - x * torch.einsum("bnpk,pkm->bnpm", d_score, precision)
    total = d_score.sum((0, 1))  # [P, K]
    first = torch.einsum("bnpk,bnpm->pkm", d_score, x)
    second = torch.einsum("bnpk,bnpm->pkm", d_score, x.square())
    d_mean = (first - total[..., None] * mean) * precision
    scatter = second - 2 * mean * first + mean.square() * total[..., None]  # Σ d_score (x − mean)²
    d_variance = 0.5 * precision * (scatter * precision - total[..., None])
    return d_x, (d_mean, d_variance, total)


def _with_ones(value: Tensor) -> Tensor:
    """[..., dv] → [..., dv + 1]: the last column accumulates Z beside M."""
    return torch.cat([value, value.new_ones(*value.shape[:-1], 1)], dim=-1)
