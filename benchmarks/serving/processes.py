"""What a server and all its processes cost: processor time and memory, as Linux counts them. Some servers work while nobody
asks: who is not measured is stopped."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def tell(pids: list[int], number: signal.Signals) -> None:
    for each in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)


@contextlib.contextmanager
def awake(pid: int) -> Iterator[None]:
    """The family runs inside of the block and stands still after it."""
    tell(family(pid), signal.SIGCONT)
    try:
        yield
    finally:
        tell(family(pid), signal.SIGSTOP)


def cpu_seconds(pid: int) -> float:
    """User and system time of the family so far, of children that ended and were waited for too."""
    total = 0
    for each in family(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / _TICKS


def megabytes(pid: int) -> float:
    """Memory of the family, pages that several share counted once (PSS)."""
    total = 0
    for each in family(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024
