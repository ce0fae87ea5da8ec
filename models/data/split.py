"""The fixed, stratified split that every data set here uses."""

from collections.abc import Sequence

import numpy as np


def stratified(targets: Sequence[int], held_out_fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices to train on and to hold out, sorted; of each class the same fraction is held out, at least one and never
    all. RandomState, because its stream is promised never to change, which default_rng's is not."""
    train: list[int] = []
    held_out: list[int] = []
    numbers = np.asarray(targets)
    for target in np.unique(numbers):
        members = np.flatnonzero(numbers == target)
        shuffled = np.random.RandomState([seed, int(target)]).permutation(members)
        count = min(max(1, round(held_out_fraction * len(members))), len(members) - 1)
        held_out += shuffled[:count].tolist()
        train += shuffled[count:].tolist()
    return sorted(train), sorted(held_out)
