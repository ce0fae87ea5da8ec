"""Torch tensors as a plan's buffers: contiguous operands, workspaces, and dtypes by Triton's names."""

import torch
from torch import Tensor

from gaussport.plugins.kernels.architectures import LEAST_SHARED_LIMIT_BYTES, SHARED_LIMIT_BYTES
from gaussport.plugins.kernels.launch import Plan

TRITON_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
"""The dtypes that kernels take, by Triton's names."""

TORCH_DTYPES = {name: dtype for dtype, name in TRITON_NAMES.items()}


def contiguous(**operands: Tensor) -> dict[str, Tensor]:
    """The operands by name, row-major. An expanded field is copied; a field with b = h = w = 1 never was expanded."""
    return {name: tensor.contiguous() for name, tensor in operands.items()}


def workspaces(plan: Plan, batch: int, device: torch.device) -> dict[str, Tensor]:
    """Uninitialised workspaces of a plan for `batch` images."""
    return {
        name: torch.empty(batch * elements, dtype=TORCH_DTYPES[dtype], device=device)
        for name, (elements, dtype) in plan.workspace.items()
    }


def shared_limit_bytes(tensor: Tensor) -> int:
    """Shared memory that one program may have on the tensor's GPU; on one we do not know, and off any, what all have."""
    if not tensor.is_cuda:
        return LEAST_SHARED_LIMIT_BYTES
    major, minor = torch.cuda.get_device_capability(tensor.device)
    return SHARED_LIMIT_BYTES.get(10 * major + minor, LEAST_SHARED_LIMIT_BYTES)
