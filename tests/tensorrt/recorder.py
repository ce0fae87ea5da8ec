"""The recording driver, in Python: `recording_driver.h` by ctypes."""

import ctypes
import hashlib
from dataclasses import dataclass
from pathlib import Path


class _Launch(ctypes.Structure):
    _fields_ = [
        ("context", ctypes.c_uint64), ("stream", ctypes.c_uint64), ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3), ("shared_bytes", ctypes.c_uint32), ("nb_parameters", ctypes.c_uint32),
        ("symbol", ctypes.c_char_p), ("code", ctypes.c_void_p), ("code_bytes", ctypes.c_uint64),
        ("parameters", ctypes.POINTER(ctypes.c_uint64)), ("parameter_bytes", ctypes.POINTER(ctypes.c_uint32)),
    ]  # fmt: skip


@dataclass(frozen=True)
class RecordedLaunch:
    """One cuLaunchKernel: what the driver was told, and the parameters as the kernel would find them."""

    context: int
    stream: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    symbol: str
    code_hash: str
    is_ptx: bool
    parameters: tuple[tuple[int, int], ...]  # (bytes, value widened with zeros)


class Recorder:
    """What the driver was asked to do."""

    def __init__(self, driver: Path) -> None:
        self.lib = ctypes.CDLL(str(driver))
        for name in ("Launches", "LiveModules", "LoadedModules"):
            getattr(self.lib, f"recording{name}").restype = ctypes.c_uint64

    def reset(self, architecture: int, shared_limit_bytes: int) -> None:
        """Forget all launches, and be a GPU of that compute capability."""
        self.lib.recordingReset(architecture, shared_limit_bytes)

    def set_context(self, context: int) -> None:
        """Make a context current in this thread; 0: none."""
        self.lib.recordingSetContext(ctypes.c_uint64(context))

    def destroy_context(self, context: int) -> None:
        self.lib.recordingDestroyContext(ctypes.c_uint64(context))

    def fail_next(self, function: str, result: int) -> None:
        self.lib.recordingFail(function.encode(), result)

    def live_modules(self) -> int:
        return int(self.lib.recordingLiveModules())

    def loaded_modules(self) -> int:
        return int(self.lib.recordingLoadedModules())

    def launches(self) -> list[RecordedLaunch]:
        """All launches since the last reset, in order."""
        return [self._launch(index) for index in range(self.lib.recordingLaunches())]

    def _launch(self, index: int) -> RecordedLaunch:
        found = _Launch()
        self.lib.recordingLaunch(ctypes.c_uint64(index), ctypes.byref(found))
        code = ctypes.string_at(found.code, found.code_bytes)
        pairs = zip(found.parameter_bytes[: found.nb_parameters], found.parameters[: found.nb_parameters], strict=True)
        return RecordedLaunch(
            context=found.context,
            stream=found.stream,
            grid=tuple(found.grid),
            block=tuple(found.block),
            shared_bytes=found.shared_bytes,
            symbol=found.symbol.decode(),
            code_hash=code_hash(code),
            is_ptx=not code.startswith(b"\x7fELF"),
            parameters=tuple(pairs),
        )


def code_hash(code: bytes) -> str:
    """sha256 of a cubin, or of PTX without the zero at its end."""
    return hashlib.sha256(code).hexdigest()
