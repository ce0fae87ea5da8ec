"""The machine that a figure belongs to. Two figures may be compared when its `identity` is the same."""

import os
import platform
from pathlib import Path

import numpy as np
import PIL
from pydantic import BaseModel, ConfigDict

from gaussport import __version__
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.cores import usable_cores

_CPU_INFO, _LOAD = Path("/proc/cpuinfo"), Path("/proc/loadavg")


class Machine(BaseModel):
    """Hardware, what runs on it, and how busy it was before anything was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    processor: str
    architecture: str
    cores: int
    """Cores that this process may use: affinity and the cgroup's quota."""
    memory_gb: float
    kernel: str
    software: dict[str, str]
    load: float | None
    """Processes that wanted a core during the last minute, of whomever; None where the system does not say."""

    @property
    def identity(self) -> tuple[str, str, int, int]:
        """What must agree: processor, architecture, cores, and memory to the gigabyte."""
        return self.processor, self.architecture, self.cores, round(self.memory_gb)

    def __str__(self) -> str:
        load = "" if self.load is None else f", load {self.load:.1f} before"
        return f"{self.processor}, {self.cores} cores of it, {self.memory_gb:.0f} GB{load}"


def this_machine() -> Machine:
    """What /proc, the scheduler and the libraries say."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        processor=_processor(),
        architecture=platform.machine(),
        cores=usable_cores(),
        memory_gb=round(pages * page / 1e9, 1),
        kernel=platform.release(),
        software={
            "gaussport": __version__,
            "python": platform.python_version(),
            "onnxruntime": onnxruntime.__version__,
            "numpy": np.__version__,
            "pillow": PIL.__version__,
        },
        load=_load(),
    )


def _processor() -> str:
    """The model's name with the numbers that tell apart what hypervisors call by one name."""
    try:
        lines = _CPU_INFO.read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = facts.get("model name") or facts.get("Processor") or platform.processor() or "unknown processor"
    numbers = [facts[key] for key in ("cpu family", "model", "stepping") if key in facts]
    return f"{name} ({'/'.join(numbers)})" if numbers else name


def _load() -> float | None:
    try:
        return float(_LOAD.read_text().split()[0])
    except (OSError, ValueError):
        return None
