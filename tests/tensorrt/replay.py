"""Runs recorded launches in Triton's interpreter, on the host memory that the plugin took for the GPU's.

What is run is decided by the recording alone: which machine code was launched, over which grid, with which parameter bytes.
`KernelFacts` say what a piece of machine code was compiled from, which the interpreter needs in its stead.
"""

import importlib
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from gaussport.plugins.kernels.launch import Buffer, Constant
from gaussport.plugins.tensorrt.package import KernelPackage
from tests.tensorrt.recorder import RecordedLaunch, code_hash

GUARD_BYTES = 4096
GUARD_VALUE = 0xA5
ALIGNMENT = 256
_TORCH = {
    "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32, "i64": torch.int64,
    "i1": torch.bool,
}  # fmt: skip


@dataclass(frozen=True)
class KernelFacts:
    """What one piece of machine code was compiled from."""

    module: str
    symbol: str
    constants: Mapping[str, Constant]
    parameters: Mapping[str, str]  # name to Triton's dtype of a pointer's elements, "int32" or "float32"; in order
    num_warps: int
    shared_bytes: int


def facts_of(package: KernelPackage) -> dict[str, KernelFacts]:
    """By hash of the machine code, for every kernel of a package."""
    found = {}
    for variant in package.variants:
        for tactic in variant.tactics:
            for compiled in tactic.plans:
                for launch, image in zip(compiled.plan.launches, compiled.images, strict=True):
                    types = {
                        name: value.dtype if isinstance(value, Buffer) else {int: "int32", float: "float32"}[type(value)]
                        for name, value in launch.arguments.items()
                    }
                    names = [parameter.name for parameter in image.parameters if parameter.source != "scratch"]
                    code = image.ptx.encode() if compiled.portable else image.cubin
                    found[code_hash(code)] = KernelFacts(
                        launch.kernel.__module__,
                        launch.name,
                        image.constants,
                        {name: types[name] for name in names},
                        image.num_warps,
                        image.shared_bytes,
                    )
    return found


def write_facts(path: Path, facts: Mapping[str, KernelFacts]) -> None:
    path.write_text(json.dumps({key: asdict(value) for key, value in facts.items()}))


def read_facts(path: Path) -> dict[str, KernelFacts]:
    return {key: KernelFacts(**value) for key, value in json.loads(path.read_text()).items()}


class DeviceMemory:
    """Allocations between guards, found again by address."""

    def __init__(self) -> None:
        self.blocks: list[tuple[Tensor, int, int]] = []  # all bytes, address of the first one given, how many

    def allocate(self, size: int, fill: int = 0xFF) -> int:
        """Address of `size` bytes, each `fill` (0xFF is a NaN in every floating format)."""
        whole = torch.full((size + 2 * GUARD_BYTES + ALIGNMENT,), GUARD_VALUE, dtype=torch.uint8)
        start = -(-(whole.data_ptr() + GUARD_BYTES) // ALIGNMENT) * ALIGNMENT
        whole[start - whole.data_ptr() :][:size] = fill
        self.blocks.append((whole, start, size))
        return start

    def upload(self, tensor: Tensor) -> int:
        """Address of a copy."""
        data = tensor.contiguous()
        address = self.allocate(data.numel() * data.element_size())
        self.view(address, data.dtype)[: data.numel()] = data.flatten()
        return address

    def view(self, address: int, dtype: torch.dtype) -> Tensor:
        """From an address to the end of its allocation."""
        for whole, start, size in self.blocks:
            if start <= address < start + max(size, 1):
                return whole[address - whole.data_ptr() : start - whole.data_ptr() + size].view(dtype)
        raise AssertionError(f"a kernel was given {address:#x}, which no allocation holds")

    def check_guards(self) -> None:
        """Nothing was written outside any allocation."""
        for whole, start, size in self.blocks:
            before, after = whole[: start - whole.data_ptr()], whole[start - whole.data_ptr() + size :]
            assert bool((before == GUARD_VALUE).all()), "a kernel wrote before a buffer"
            assert bool((after == GUARD_VALUE).all()), "a kernel wrote past a buffer"


def replay(launches: Iterable[RecordedLaunch], facts: Mapping[str, KernelFacts], memory: DeviceMemory) -> None:
    """Interpret launches in the order given."""
    for launch in launches:
        _interpret(launch, facts[launch.code_hash], memory)
    memory.check_guards()


def _interpret(launch: RecordedLaunch, facts: KernelFacts, memory: DeviceMemory) -> None:
    assert launch.symbol == facts.symbol
    assert launch.block == (32 * facts.num_warps, 1, 1)
    assert launch.shared_bytes == facts.shared_bytes
    scratch = launch.parameters[len(facts.parameters) :]
    assert scratch == ((8, 0), (8, 0)), "the hidden scratch pointers are null"
    arguments: dict[str, Tensor | int | float] = {}
    for (size, value), (name, kind) in zip(launch.parameters, facts.parameters.items(), strict=False):
        if kind == "int32":
            assert size == 4
            (arguments[name],) = struct.unpack("<i", struct.pack("<I", value))
        elif kind == "float32":
            assert size == 4
            (arguments[name],) = struct.unpack("<f", struct.pack("<I", value))
        else:
            assert size == 8
            arguments[name] = memory.view(value, _TORCH[kind])
    kernel = getattr(importlib.import_module(facts.module), facts.symbol)
    kernel[launch.grid](**arguments, **facts.constants)
