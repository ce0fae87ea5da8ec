"""Memory stays flat whatever the mix of batch sizes (case 26: an arena that rounds up, never gives back) and reloads."""

import asyncio
import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gaussport.export.bundle.store import open_bundle
from gaussport.serving.metrics import Metrics
from gaussport.serving.repository import Repository
from gaussport.serving.runtime import Runtime
from gaussport.serving.served_models import ServedModels
from gaussport.serving.settings import Settings

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


def test_a_model_that_goes_is_freed_at_once(write_bundle: Callable[..., Path], tmp_path: Path) -> None:
    """Reloads without end: no old model, session or queue may wait for the collector of cycles, which seldom runs here."""

    async def reloads() -> list[object]:
        write_bundle(tmp_path / "m" / "1")
        models = ServedModels(Repository([tmp_path]), Settings(threads=1), Metrics())
        await models.load_all()
        old: list[weakref.ref[object]] = []
        for version in (2, 3, 4):
            served = models.find("m")
            rows = served.runtime.blank(2)
            with served, served.batcher.place(2) as place:
                await served.answer(place, rows, served.queue.clock() + 20, urgent=False)
            old += [weakref.ref(served), weakref.ref(served.runtime), weakref.ref(served.queue)]
            del served, place
            write_bundle(tmp_path / "m" / str(version))
            await models.refresh()
            await asyncio.gather(*models._retiring)
        await models.close()
        return [one for ref in old if (one := ref()) is not None]

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(reloads()) == []
    finally:
        gc.enable()
