"""How many cores this process may really use: its affinity and its cgroup's quota, not what the host has."""

import contextlib
import math
import os
import threading
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_NICER = 5


def usable_cores(cgroup_root: Path = _CGROUP_ROOT, own_cgroup: Path = _OWN_CGROUP) -> int:
    """min(affinity, quota rounded up), at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota(cgroup_root, own_cgroup)
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def _quota(root: Path, own: Path) -> float | None:
    """The smallest CPU limit, in cores, of this process's cgroup and those above it; None when there is none."""
    limits: list[float] = []
    folder = root / _own_path(own)
    while folder.is_relative_to(root):
        try:
            allowed, period = (folder / "cpu.max").read_text().split()
            if allowed != "max":
                limits.append(int(allowed) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            pass
        if folder == root:
            break
        folder = folder.parent
    try:  # cgroup v1 keeps the same two numbers in files of their own
        allowed_us = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        if allowed_us > 0:
            limits.append(allowed_us / int((root / "cpu" / "cpu.cfs_period_us").read_text()))
    except (OSError, ValueError, ZeroDivisionError):
        pass
    return min(limits, default=None)


def _own_path(own: Path) -> str:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return ""
    return next((line[3:].lstrip("/") for line in lines if line.startswith("0::") and ".." not in line), "")


def after_the_event_loop() -> None:
    """Let this thread have a core only when the event loop does not want it, where the system knows niceness of threads.

    Without it the threads that decode take turns with the one that reads and refuses requests: on a machine with fewer
    free cores than threads, a backlog then grows where no limit of ours can see it.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICER))
