"""What TensorRT says, kept: the last error is the reason that its None lacks."""

from pathlib import Path
from typing import Any

_KEPT = 200


class Messages:
    """Errors and warnings, in order, also in a file that outlives a crash of the process."""

    def __init__(self, path: Path) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self._file = path.open("w", encoding="utf-8", buffering=1)

    def add(self, severity: str, text: str) -> None:
        """Keep one message; `severity` is TensorRT's name for it."""
        if severity == "VERBOSE":
            return
        line = " ".join(text.split())
        self._file.write(f"{severity} {line}\n")
        kept = self.errors if severity in ("INTERNAL_ERROR", "ERROR") else self.warnings if severity == "WARNING" else None
        if kept is not None and len(kept) < _KEPT:
            kept.append(line)

    def close(self) -> None:
        self._file.close()

    @property
    def reason(self) -> str:
        """The last error, in one line."""
        return self.errors[-1] if self.errors else "TensorRT gave no reason"


def make_logger(trt: Any, messages: Messages) -> Any:
    """A logger object for TensorRT that keeps its messages."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            messages.add(severity.name, text)

    return Logger()
