"""Operands for a case, and what the operator's definition makes of them in float64."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaussport.plugins.latent_memory_routing.definition import latent_memory_routing
from gaussport.plugins.separable_gaussian_filter.definition import separable_gaussian_filter
from tests.tensorrt.cases import Case

TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1.6e-2}
"""Largest error over the largest value of the definition, as for the kernels themselves (tests/kernels/interpreted)."""


def draw(case: Case, grid: int, batch: int, seed: int = 0) -> list[Tensor]:
    """Operands in the case's dtypes."""
    g = torch.Generator().manual_seed(seed)
    shapes = [[int(size or 0) for size in shape] for shape in case.shapes(grid, batch)]
    if case.operator == "SeparableGaussianFilter":
        value, offset, width, weight = (torch.randn(shape, generator=g) for shape in shapes)
        drawn = [value, 2 * offset, 0.3 + width.abs(), weight.softmax(-1)]
    else:
        query, key, value, mean, variance, log_prior = (torch.randn(shape, generator=g) for shape in shapes[:6])
        drawn = [query, key, value, mean, 0.5 + variance.abs(), log_prior.log_softmax(-1)]
    converted = [tensor.to(TORCH[case.dtype]) for tensor in drawn]
    if case.mask_dtype is not None:
        mask = torch.rand(shapes[6], generator=g) > 0.3
        converted.append(mask if case.mask_dtype == "i1" else mask.to(TORCH[case.mask_dtype]))
    return converted


def defined(case: Case, operands: list[Tensor]) -> NDArray[np.float64]:
    """The definition's answer for the operands as they were rounded."""
    exact = [operand.double().numpy() for operand in operands]
    if case.operator == "SeparableGaussianFilter":
        return separable_gaussian_filter(*exact)
    return latent_memory_routing(
        *exact,
        epsilon=float(case.attributes.get("epsilon", 1e-6)),
        causal=bool(case.attributes.get("causal", 0)),
    )
