"""What a picture costs by the size of its batch, on one thread, on two, and in two batches of a thread each.

    python -m benchmarks.side_by_side build/mnist-ssog build/mnist-gma build/serving/small build/serving/large

The last two are what benchmarks/serving makes. One ONNX Runtime session for each number of threads, opened as the server
opens it; all take turns, round after round, and each has run the shape before it is timed. Rewrites its block of
docs/performance.md.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.page import rewrite, table
from gaussport.export.bundle.store import open_bundle
from gaussport.serving.bench.machine import this_machine
from gaussport.serving.runtime import Runtime

WAYS = ("1 thread", "2 threads", "2 × 1 thread")
ROUNDS = 5


@dataclass(frozen=True)
class Cost:
    """Milliseconds for a picture, by the clock and of processor time."""

    clock: float
    core: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=0.3, help="for each size and way in each round (default: 0.3)")
    wish = parser.parse_args()
    machine, rows = this_machine(), []
    for path in track(wish.bundles, "measuring", console=Console(stderr=True)):
        costs = measure(path, wish.sizes, wish.seconds)
        for size in wish.sizes:
            cells = [f"{each.clock:.2f} · {each.core:.2f}" for each in (costs[size, way] for way in WAYS)]
            rows.append([open_bundle(path).manifest.name, str(size), *cells])
    text = table(["model", "batch", *(f"{way}, clock · core ms" for way in WAYS)], rows)
    rewrite("side-by-side", f"{machine}.\n\n{text}")
    Console(soft_wrap=True).print(text, highlight=False)


def measure(path: Path, sizes: list[int], seconds: float) -> dict[tuple[int, str], Cost]:
    """The median cost over the rounds of each size and way."""
    bundle = open_bundle(path)
    one, two = (Runtime(bundle, threads=threads) for threads in (1, 2))
    each_s = alone(one)
    taken: dict[tuple[int, str], list[Cost]] = {}
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            for size in sizes:
                runs = max(1, round(seconds / each_s / size))
                rows = one.blank(size)
                for way, runtime, jobs in zip(WAYS, (one, two, one), (1, 1, 2), strict=True):
                    run = partial(runtime.run, rows)
                    again(run, 2)
                    spent = timed(partial(side_by_side, pool, run, runs, jobs))
                    images = runs * size * jobs
                    taken.setdefault((size, way), []).append(Cost(*(1e3 * each / images for each in spent)))
    return {
        key: Cost(statistics.median(cost.clock for cost in costs), statistics.median(cost.core for cost in costs))
        for key, costs in taken.items()
    }


def side_by_side(pool: ThreadPoolExecutor, run: Callable[[], object], runs: int, jobs: int) -> None:
    for future in [pool.submit(again, run, runs) for _ in range(jobs)]:
        future.result()


def alone(runtime: Runtime) -> float:
    """Seconds of a batch of one."""
    run = partial(runtime.run, runtime.blank(1))
    again(run, 3)
    return timed(run)[0]


def again(run: Callable[[], object], times: int) -> None:
    for _ in range(times):
        run()


def timed(run: Callable[[], object]) -> tuple[float, float]:
    clock, core = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - core


if __name__ == "__main__":
    main()
