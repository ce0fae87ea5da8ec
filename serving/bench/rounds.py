"""Interleaved rounds: in each, everything that is compared runs once, so that ratios hold while a machine's speed drifts."""

import time
from collections.abc import Callable, Mapping
from statistics import quantiles

from pydantic import BaseModel, ConfigDict

_LEAST_S = 0.02
"""A shorter run is repeated within its round: on some systems the processor's clock ticks every few milliseconds."""


class Timing(BaseModel):
    """Milliseconds of one run: median and quartiles by the clock over the rounds, and of the processor's time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wall_ms: float
    low_ms: float
    high_ms: float
    cpu_ms: float
    rounds: int

    @property
    def spread(self) -> float:
        """The distance of the quartiles as a share of the median."""
        return (self.high_ms - self.low_ms) / self.wall_ms


def interleaved(
    runs: Mapping[str, Callable[[], object]], rounds: int, seconds: float | None = None, warm_up: int = 1
) -> dict[str, Timing]:
    """The timing of each run over `rounds` rounds, or as many as fit into `seconds`, three at least; `warm_up` go before."""
    repeats = {name: _repeats(run, warm_up) for name, run in runs.items()}
    walls: dict[str, list[float]] = {name: [] for name in runs}
    cpus: dict[str, list[float]] = {name: [] for name in runs}
    began = time.monotonic()
    for number in range(rounds):
        if seconds is not None and number >= 3 and time.monotonic() - began > seconds:
            break
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(repeats[name]):
                run()
            walls[name].append(1e3 * (time.perf_counter() - wall) / repeats[name])
            cpus[name].append(1e3 * (time.process_time() - cpu) / repeats[name])
    return {name: summary(walls[name], cpus[name]) for name in runs}


def summary(walls: list[float], cpus: list[float]) -> Timing:
    """The timing of runs that took these milliseconds."""
    low, median, high = _quartiles(walls)
    return Timing(wall_ms=median, low_ms=low, high_ms=high, cpu_ms=_quartiles(cpus)[1], rounds=len(walls))


def _repeats(run: Callable[[], object], warm_up: int) -> int:
    for _ in range(max(0, warm_up - 1)):
        run()
    began = time.perf_counter()
    run()
    return max(1, round(_LEAST_S / max(time.perf_counter() - began, 1e-6)))


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = quantiles(values, n=4, method="inclusive")
    return low, median, high
