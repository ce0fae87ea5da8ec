"""One kernel launch as plain data: what to run, over how many programs, with which compile-time constants and arguments.

A plan (a tuple of launches) is made from sizes and a dtype alone, by `triton_launch.plan` of each operator. PyTorch runs
it on tensors here; `aot` compiles the same plan to cubins; a C++ launcher replays it. So nothing about a launch is decided
anywhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

DTYPES = ("fp32", "fp16", "bf16")
"""Triton's names of the dtypes that kernels read and write."""


@dataclass(frozen=True)
class Buffer:
    """A tensor argument: which operand or workspace, and its element's Triton name. Contiguous and 16-byte aligned."""

    name: str
    dtype: str


Argument: TypeAlias = Buffer | int | float
"""Numbers are passed as int32 or float32."""

Constant: TypeAlias = int | bool | str | None
"""Known when the kernel is compiled; None is an operand that is not given."""


@dataclass(frozen=True)
class Launch:
    """One launch. `programs_per_image` times the batch is the grid's only axis; `arguments` are in the kernel's order."""

    kernel: Any  # a triton.JITFunction
    programs_per_image: int
    arguments: Mapping[str, Argument]
    constants: Mapping[str, Constant]
    num_warps: int = 4
    num_stages: int = 2

    @property
    def options(self) -> dict[str, int | bool]:
        """What Triton's compiler is told, by PyTorch's launches and ahead of time alike."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, "enable_fp_fusion": True}

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)


@dataclass(frozen=True)
class Plan:
    """Launches in order, and the workspaces between them: elements per image and the element's dtype."""

    launches: tuple[Launch, ...]
    workspace: Mapping[str, tuple[int, str]] = field(default_factory=dict)


class _Addressable(Protocol):
    def data_ptr(self) -> int: ...


def execute(plan: Plan, batch: int, buffers: Mapping[str, _Addressable]) -> None:
    """Run every launch of a plan for `batch` images on tensors; `buffers` has every operand and workspace by name."""
    for launch in plan.launches:
        arguments = {
            name: buffers[argument.name] if isinstance(argument, Buffer) else argument
            for name, argument in launch.arguments.items()
        }
        grid = (launch.programs_per_image * batch,)
        launch.kernel[grid](**arguments, **launch.constants, **launch.options)
