"""The NVIDIA GPUs of this machine, asked of the driver itself: no CUDA toolkit, no PyTorch, nothing installed is needed."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

DRIVER_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_NAME_BYTES = 256


@dataclass(frozen=True)
class GPU:
    """One device as the driver numbers it. `architecture` is the compute capability times ten."""

    index: int
    name: str
    architecture: int
    memory_bytes: int

    def __str__(self) -> str:
        return f"{self.name}, sm_{self.architecture}, {self.memory_bytes / 2**30:.0f} GiB"


@dataclass(frozen=True)
class Driver:
    """What the driver says: its CUDA version, the devices, and in words why there are none."""

    cuda_version: str | None
    gpus: tuple[GPU, ...]
    fault: str | None = None


def driver(library: str = DRIVER_LIBRARY) -> Driver:
    """Ask the driver. Never raises: a machine without a GPU is an answer."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return Driver(None, (), f"there is no NVIDIA driver: {library} cannot be loaded")
    try:
        return _asked(cuda)
    except _DriverError as fault:
        return Driver(None, (), str(fault))


class _DriverError(Exception):
    """A driver call failed."""


def _asked(cuda: ctypes.CDLL) -> Driver:
    _checked(cuda, "cuInit", 0)
    version, count = ctypes.c_int(), ctypes.c_int()
    _checked(cuda, "cuDriverGetVersion", ctypes.byref(version))
    _checked(cuda, "cuDeviceGetCount", ctypes.byref(count))
    gpus = tuple(_gpu(cuda, index) for index in range(count.value))
    words = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Driver(words, gpus, None if gpus else "the NVIDIA driver sees no GPU: look at CUDA_VISIBLE_DEVICES")


def _gpu(cuda: ctypes.CDLL, index: int) -> GPU:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    memory, name = ctypes.c_size_t(), ctypes.create_string_buffer(_NAME_BYTES)
    _checked(cuda, "cuDeviceGet", ctypes.byref(device), index)
    _checked(cuda, "cuDeviceGetName", name, _NAME_BYTES, device)
    _checked(cuda, "cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, device)
    _checked(cuda, "cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, device)
    _checked(cuda, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    return GPU(index, name.value.decode(errors="replace"), 10 * major.value + minor.value, memory.value)


def _checked(cuda: ctypes.CDLL, name: str, *arguments: object) -> None:
    call: Callable[..., int] | None = getattr(cuda, name, None)
    if call is None:
        raise _DriverError(f"the NVIDIA driver is too old: it has no {name}")
    if (code := call(*arguments)) != 0:
        raise _DriverError(f"the NVIDIA driver answers {name} with error {code}: no GPU can be used")
