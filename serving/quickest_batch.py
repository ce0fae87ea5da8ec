"""The batch at which a picture costs least on this machine's CPU.

There, unlike on a GPU, more pictures at once are not always cheaper: beyond a few of 224 × 224 what one layer hands to the
next no longer fits the cache, and each takes up to two fifths longer (docs/performance.md).
"""

import time
from collections.abc import Callable

_AS_GOOD = 1.05
_DEARER = 1.15
_RUNS = 4
_BESIDE_S = 2e-4
"""What the server does for a batch beside running it."""


def quickest_batch(
    run: Callable[[int], object], most: int, patience_s: float, clock: Callable[[], float] = time.perf_counter
) -> int:
    """The largest of 1, 2, 4 … `most` at which a picture takes at most a twentieth longer than at the best of them.

    Sizes are tried upwards until one is clearly dearer than the best so far, or the next would take longer than what is left
    of `patience_s`: larger ones are not run at all. `clock` is what they are timed by.
    """
    seconds: dict[int, float] = {}
    began = clock()
    for size in [*(1 << n for n in range(most.bit_length()) if 1 << n < most), most]:
        if seconds and clock() - began + _RUNS * size * min(seconds.values()) > patience_s:
            break
        seconds[size] = _seconds(run, size, clock) / size
        if seconds[size] > _DEARER * min(seconds.values()):
            break
    best = min(seconds.values())
    return max(size for size, each in seconds.items() if each <= _AS_GOOD * best)


def _seconds(run: Callable[[int], object], size: int, clock: Callable[[], float]) -> float:
    """The least of some runs after two: ONNX Runtime plans memory in the first of a size, and asks for it in the second."""
    taken = []
    for _ in range(_RUNS):
        began = clock()
        run(size)
        taken.append(clock() - began)
    return min(taken[2:]) + _BESIDE_S
