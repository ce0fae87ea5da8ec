"""Case 26: an arena that rounds up and never gives back must not grow with the mix of batch sizes."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gaussport.export.bundle.store import open_bundle
from gaussport.serving.runtime import Runtime

MOST = 16


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_memory_is_flat_whatever_the_batch_sizes(write_bundle: Callable[..., Path], tmp_path: Path) -> None:
    runtime = Runtime(open_bundle(write_bundle(tmp_path / "bundle")), threads=1)
    rows = np.zeros((MOST, *runtime.manifest.preprocessing.tensor_shape), np.float32)
    sizes = [1 + number % MOST for number in range(600)] + [1] * 300
    seen = []
    for number, size in enumerate(sizes):
        runtime.run(rows[:size])
        if number % 50 == 49:
            seen.append(resident())
    assert max(seen[2:]) <= 1.05 * seen[1], seen
