"""How a worker's cores are shared out: batches that run side by side on a CPU, and the threads of each.

A second thread seldom makes one batch of a small model much faster, for most layers are over before the thread is awake
(docs/performance.md); two batches on a thread each use both cores. Many cores are shared out evenly: 16 run 4 batches of 4.
"""

import math
from dataclasses import dataclass

from gaussport.serving.cores import usable_cores
from gaussport.serving.settings import Settings


@dataclass(frozen=True)
class Shares:
    """`at_once` batches of `threads` each."""

    threads: int
    at_once: int = 1


def cores_each(settings: Settings) -> int:
    """A worker's share of the cores that the server may use."""
    return max(1, usable_cores() // settings.workers)


def shares(settings: Settings, cores: int) -> Shares:
    """As set; what is not follows from the cores. A GPU has one batch at a time, and `auto` may find one."""
    if settings.threads is not None:
        return Shares(settings.threads, settings.batches_at_once or 1)
    if settings.provider not in ("cpu", "auto"):
        return Shares(cores)
    at_once = settings.batches_at_once or cores // math.isqrt(cores)
    return Shares(max(1, cores // at_once), at_once)
