"""How many cores this process may really use: its affinity and its cgroup's quota, not what the host has."""

import math
import os
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


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
