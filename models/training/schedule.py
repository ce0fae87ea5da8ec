"""The learning rate over a run: a linear rise, then half a cosine down to zero."""

import math


def learning_rate(step: int, steps: int, warmup_steps: int, peak: float) -> float:
    """The rate of optimiser step `step`, counted from 0, of `steps`; the last warm-up step is at the peak."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, steps - warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
