"""What a compiled kernel uses, read from its cubin by the `cuobjdump` that Triton brings."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from triton import knobs

from gaussport.plugins.kernels.aot import KernelImage

_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


@dataclass(frozen=True)
class Resources:
    """Per-thread registers and bytes of local memory (0 means that nothing was spilled), per-program shared bytes."""

    registers: int
    spill_bytes: int
    shared_bytes: int


def read_resources(image: KernelImage) -> Resources:
    """Run cuobjdump on the image's cubin.

    Raises:
        RuntimeError: its answer has no resource line.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(image.cubin)
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = _USAGE.search(answer)
    if usage is None:
        raise RuntimeError(f"cuobjdump named no resources of {image.symbol}: {answer!r}")
    registers, stack, static_shared, local = map(int, usage.groups())
    return Resources(registers, stack + local, static_shared + image.shared_bytes)
