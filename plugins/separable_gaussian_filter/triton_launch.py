"""How `SeparableGaussianFilter` runs on a GPU: which kernels, tiles and workspace for which sizes, and `run` for tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gaussport.plugins.kernels.architectures import LEAST_SHARED_LIMIT_BYTES
from gaussport.plugins.kernels.launch import Argument, Buffer, Constant, Launch, Plan, execute
from gaussport.plugins.kernels.tiling import cover, tiles
from gaussport.plugins.kernels.torch_buffers import TRITON_NAMES, contiguous, shared_limit_bytes, workspaces
from gaussport.plugins.separable_gaussian_filter import triton_kernel
from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR

FUSED_SIDE = 32
"""A grid of at most this many rows and columns may be filtered in one launch, if its tiles fit in shared memory."""

FUSED_ROWS = 16
"""Output rows of one program of the fused kernel: the least that a matrix product takes without waste."""

FUSED_SLACK_BYTES = 8 << 10
"""Shared memory that Triton takes beside the three tiles, for reductions and layout changes; 0 to 6 kB were seen."""

PRECISION = {"fp32": "ieee", "fp16": "ieee", "bf16": "tf32"}
"""How `tl.dot` multiplies. float16 tiles go to the tensor cores as they are. float32 tiles are multiplied in float32 (no
tensor core); bfloat16 ones are widened and multiplied in TF32, which has three bits more than they had."""


@dataclass(frozen=True)
class FilterSizes:
    """Letters of the schema; `fixed`: (h, w) = (1, 1); `shared`: b = 1."""

    H: int
    W: int
    P: int
    R: int
    D: int
    fixed: bool
    shared: bool


def plan(
    sizes: FilterSizes,
    dtype: str,
    *,
    shared_limit_bytes: int = LEAST_SHARED_LIMIT_BYTES,
    window: bool = True,
    fused: bool | None = None,
) -> Plan:
    """The launches for one image's sizes and a dtype of `launch.DTYPES`.

    Args:
        shared_limit_bytes: shared memory that one program may have on the GPU; see `architectures`.
        window: skip tiles of weights below 2⁻²⁴ of the largest (two-launch form only; error bound in docs/kernels.md).
        fused: one launch or two; None takes one where it fits.
    """
    block_d = _fused_channels(sizes, dtype, shared_limit_bytes)
    if fused is None:
        fused = block_d is not None
    return _fused(sizes, dtype, block_d or 16) if fused else _two_passes(sizes, dtype, window)


def _fused_channels(sizes: FilterSizes, dtype: str, shared_limit_bytes: int) -> int | None:
    """How many channels one program of the fused kernel takes at a time, or None when no number fits.

    More channels share the same weights, whose making costs more than multiplying with them; the tiles are bounded by
    shared memory and, above 16 cells a side and for float32 (whose products run outside the tensor cores), by registers.
    """
    block_h, block_w = cover(sizes.H), cover(sizes.W)
    if max(block_h, block_w) > (16 if dtype == "fp32" else FUSED_SIDE):
        return None
    most = 64 if max(block_h, block_w) == 16 and dtype != "fp32" else 32
    element = 2 if dtype == "fp16" else 4
    for block_d in (64, 32, 16):
        elements = block_w * (block_h * block_d + FUSED_ROWS * block_d + FUSED_ROWS * block_h)  # value, row pass, weights
        if block_d <= min(most, cover(sizes.D)) and element * elements + FUSED_SLACK_BYTES <= shared_limit_bytes:
            return block_d
    return None


def _fused(sizes: FilterSizes, dtype: str, block_d: int) -> Plan:
    launch = Launch(
        kernel=triton_kernel.filter_fused,
        programs_per_image=tiles(sizes.H, FUSED_ROWS) * tiles(sizes.D, block_d) * sizes.P,
        arguments=_arguments(sizes, dtype, ("value", "offset", "width", "weight", "output")),
        constants={
            **_constants(sizes, dtype),
            "BLOCK_H": cover(sizes.H), "BLOCK_I": FUSED_ROWS, "BLOCK_W": cover(sizes.W), "BLOCK_D": block_d,
        },
        num_warps=8,
    )  # fmt: skip
    return Plan((launch,))


def _two_passes(sizes: FilterSizes, dtype: str, window: bool) -> Plan:
    block_d, rows, columns = (min(cover(size), 64) for size in (sizes.D, sizes.H, sizes.W))
    constants = {**_constants(sizes, dtype), "WINDOW": window, "BLOCK_D": block_d}
    passed = "fp16" if dtype == "fp16" else "fp32"
    row_pass = Launch(
        kernel=triton_kernel.filter_rows,
        programs_per_image=sizes.W * tiles(sizes.H, rows) * tiles(sizes.D, block_d) * sizes.P,
        arguments=_arguments(sizes, dtype, ("value", "offset", "width", "passed"), passed),
        constants={**constants, "BLOCK_I": rows, "BLOCK_J": 16},
        num_warps=4 if rows == 64 else 2,
    )
    column_pass = Launch(
        kernel=triton_kernel.filter_columns,
        programs_per_image=sizes.H * tiles(sizes.W, columns) * tiles(sizes.D, block_d) * sizes.P,
        arguments=_arguments(sizes, dtype, ("passed", "offset", "width", "weight", "output"), passed),
        constants={**constants, "BLOCK_Q": columns, "BLOCK_K": 16},
        num_warps=4 if columns == 64 else 2,
    )
    elements = sizes.H * sizes.W * sizes.P * sizes.R * sizes.D
    return Plan((row_pass, column_pass), workspace={"passed": (elements, passed)})


def refusal(dtype: torch.dtype) -> str | None:
    """Why the kernels cannot serve operands of this dtype, or None when they can."""
    if dtype not in TRITON_NAMES:
        return f"{OPERATOR.name}: the GPU kernels take float32, float16 or bfloat16, not {dtype}"
    return None


def run(value: Tensor, offset: Tensor, width: Tensor, weight: Tensor) -> Tensor:
    """The operator on a GPU (or in Triton's interpreter); same contract as the torch operator, operands already checked."""
    return run_plan(value, offset, width, weight)


def run_plan(
    value: Tensor, offset: Tensor, width: Tensor, weight: Tensor, *, window: bool = True, fused: bool | None = None
) -> Tensor:
    """`run` with the choices that it makes by itself left to the caller; see `plan`."""
    sizes = OPERATOR.bind([value.shape, offset.shape, width.shape, weight.shape])
    complaint = refusal(value.dtype)
    if complaint is not None:
        raise ValueError(complaint)
    H, W, P, R, D = (sizes[letter] for letter in "HWPRD")
    chosen = plan(
        FilterSizes(H, W, P, R, D, fixed=sizes["h"] * sizes["w"] == 1, shared=sizes["b"] == 1),
        TRITON_NAMES[value.dtype],
        shared_limit_bytes=shared_limit_bytes(value),
        window=window,
        fused=fused,
    )
    output = torch.empty_like(value, memory_format=torch.contiguous_format)
    operands = contiguous(value=value, offset=offset, width=width, weight=weight)
    execute(chosen, sizes["B"], {**operands, "output": output, **workspaces(chosen, sizes["B"], value.device)})
    return output


def _arguments(sizes: FilterSizes, dtype: str, buffers: tuple[str, ...], passed: str | None = None) -> dict[str, Argument]:
    tokens = 1 if sizes.fixed else sizes.H * sizes.W
    return {
        **{name: Buffer(name, passed if passed and name == "passed" else dtype) for name in buffers},
        "field_batch": 0 if sizes.shared else tokens,
        "H": sizes.H,
        "W": sizes.W,
        "P": sizes.P,
    }


def _constants(sizes: FilterSizes, dtype: str) -> dict[str, Constant]:
    return {"R": sizes.R, "D": sizes.D, "FIXED": sizes.fixed, "PRECISION": PRECISION[dtype]}
