"""Cores, memory, GPUs, ONNX Runtime and each of its execution providers."""

import os
import platform
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gaussport import __version__
from gaussport.doctor.finding import Finding
from gaussport.errors import ServingError
from gaussport.gpu import Driver

_PART = "machine"
_CGROUP = Path("/sys/fs/cgroup")


def machine(found: Driver) -> Iterator[Finding]:
    """The machine itself."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, gaussport {__version__}"
    yield Finding(_PART, "system", "note", system)
    yield Finding(_PART, "cores", "note", _cores())
    yield Finding(_PART, "memory", "note", _memory())
    if found.fault is not None:
        yield Finding(_PART, "GPU", "no", found.fault)
    for gpu in found.gpus:
        yield Finding(_PART, f"GPU {gpu.index}", "ok", f"{gpu}; the driver is for CUDA {found.cuda_version}")


def providers(found: Driver) -> Iterator[Finding]:
    """ONNX Runtime and where it can run models."""
    if find_spec("onnxruntime") is None:
        yield Finding("serving", "ONNX Runtime", "no", "not installed: pip install 'gaussport[serve]', or [gpu] for a GPU")
        return
    from gaussport.onnx_runtime import onnxruntime
    from gaussport.serving.providers import PROVIDERS

    names = ", ".join(onnxruntime.get_available_providers())
    yield Finding("serving", "ONNX Runtime", "ok", f"{onnxruntime.__version__} with {names}")
    for name in PROVIDERS:
        reason = refusal(name, found)
        yield Finding("serving", f"provider {name}", "no" if reason else "ok", reason or _runs(name, found))


def refusal(provider: str, found: Driver) -> str | None:
    """Why the provider cannot run here, or None when it can."""
    from gaussport.serving.provider_options import GPU_PROVIDERS
    from gaussport.serving.providers import missing
    from gaussport.serving.tensorrt_libraries import load_tensorrt

    if (reason := missing(provider)) is not None:
        return reason
    if provider not in GPU_PROVIDERS:
        return None
    if not found.gpus:
        return found.fault
    if provider != "cuda":
        try:
            load_tensorrt(provider)
        except ServingError as error:
            return str(error)
    return None


def _runs(provider: str, found: Driver) -> str:
    from gaussport.serving.tensorrt_libraries import load_tensorrt, version_of

    if provider == "cpu":
        return "runs every bundle, with the function bodies"
    if provider == "cuda":
        return f"runs every bundle on {found.gpus[0].name}, with the function bodies"
    return f"runs engines for sm_{found.gpus[0].architecture} that were built with {version_of(load_tensorrt(provider))}"


def _cores() -> str:
    from gaussport.serving.cores import usable_cores

    allowed, usable = len(os.sched_getaffinity(0)), usable_cores()
    limit = "" if usable == allowed else f", of which the control group's CPU quota leaves {usable}"
    return f"{os.cpu_count()} in the machine, {allowed} allowed to this process{limit}; inference takes {usable} threads"


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _memory_limit()
    words = f"{total / 2**30:.1f} GiB in the machine"
    return words if limit is None or limit >= total else f"{words}, {limit / 2**30:.1f} GiB allowed by the control group"


def _memory_limit() -> int | None:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            return int((_CGROUP / name).read_text())
        except (OSError, ValueError):
            continue
    return None
