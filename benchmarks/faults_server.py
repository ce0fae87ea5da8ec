"""The server of the fault run, in processes of its own."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MODEL = "model"
DEADLINE_MS = 4000.0
BODY_TIMEOUT_S = 5.0
QUEUE_IMAGES = 32


@contextlib.contextmanager
def server(models: Path, port: int, workers: int, log: Path) -> Iterator[subprocess.Popen[str]]:
    """`gaussport serve`, ready."""
    words = ["serve", str(models), "--port", str(port), "--workers", str(workers), "--queue-size", str(QUEUE_IMAGES)]
    words += ["--timeout-ms", str(DEADLINE_MS), "--body-timeout-s", str(BODY_TIMEOUT_S), "--drain-delay-s", "0.5"]
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "gaussport", *words], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit(log.read_text())
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def family(process: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *map(int, children)]


def resident_mb(process: int) -> float:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def processor_s(process: int) -> float:
    """What a process has had of a processor so far, its own and the system's time for it."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
