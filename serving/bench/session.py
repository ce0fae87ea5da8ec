"""Bundles in this process: how long a batch takes by its size, and what a process of its own costs to start."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import BundleError, UsageError
from gaussport.export.bundle.manifest import Manifest
from gaussport.export.bundle.store import Bundle
from gaussport.serving.bench.document import SessionFigures, Start
from gaussport.serving.bench.rounds import interleaved
from gaussport.serving.runtime import Runtime

Rows = NDArray[np.generic]


def random_rows(manifest: Manifest, batch: int) -> Rows:
    """Normalised noise in the shape of the model's input, the same each time.

    Raises:
        UsageError: the model reads more than one tensor, or one of no fixed size.
    """
    shape = manifest.input.shape[1:]
    fixed = [axis for axis in shape if isinstance(axis, int)]
    if len(manifest.inputs) > 1 or len(fixed) < len(shape):
        raise UsageError(f"{manifest.name} does not read pictures alone: serve it and measure it with --url")
    return np.random.default_rng(0).standard_normal((batch, *fixed), dtype=np.float32)


def measure_sessions(
    bundles: Sequence[Bundle], provider: str, threads: int, sizes: Sequence[int], rounds: int, seconds: float
) -> list[SessionFigures]:
    """Figures of every bundle. All of them run in every round, each size for about `seconds` in all.

    Raises:
        UsageError: a size is more than a bundle takes, or a bundle cannot be measured in a process.
    """
    names = [bundle.manifest.name for bundle in bundles]
    if len(set(names)) < len(names):
        raise UsageError(f"two bundles are called {max(names, key=names.count)}: measure them one after the other")
    for bundle in bundles:
        random_rows(bundle.manifest, 1)  # refuses in our words, before a process of its own fails in its
    starts = [_start(bundle, provider, threads) for bundle in bundles]
    runtimes = [Runtime(bundle, provider, threads) for bundle in bundles]
    taken = [_sizes(runtime, sizes) for runtime in runtimes]
    timings = {}
    for size in sorted({size for each in taken for size in each}):
        runs = {
            runtime.manifest.name: partial(runtime.run, random_rows(runtime.manifest, size))
            for runtime, allowed in zip(runtimes, taken, strict=True)
            if size in allowed
        }
        timings[size] = interleaved(runs, rounds, seconds, warm_up=2)
    return [
        SessionFigures(
            model=runtime.manifest.name,
            model_sha256=runtime.manifest.model_sha256,
            provider=runtime.provider,
            threads=runtime.threads,
            start=start,
            batches={size: timings[size][runtime.manifest.name] for size in allowed},
        )
        for runtime, start, allowed in zip(runtimes, starts, taken, strict=True)
    ]


def _sizes(runtime: Runtime, wanted: Sequence[int]) -> list[int]:
    if runtime.fixed_batch:
        return [runtime.fixed_batch]
    if max(wanted) > runtime.max_batch:
        raise UsageError(
            f"{runtime.manifest.name} was proved up to batch {runtime.max_batch} and --batches has {max(wanted)}: "
            "leave that out, or export with a larger --max-batch"
        )
    return sorted(set(wanted))


def _start(bundle: Bundle, provider: str, threads: int) -> Start:
    command = [sys.executable, "-m", "gaussport.serving.bench.fresh", str(bundle.path), provider, str(threads)]
    done = subprocess.run([*command, repr(time.time())], capture_output=True, text=True, env=os.environ, check=False)
    if done.returncode != 0:
        raise BundleError(f"{bundle.path} does not start in a process of its own: {_last_line(done.stderr)}")
    return Start.model_validate_json(done.stdout)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
