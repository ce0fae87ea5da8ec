"""The smallest set of layers that must stay wide for the whole to be good, as far as a search can tell.

Each layer is judged alone, then as many of the worst are kept as are needed (by bisection), then each of those is given up
again if the rest does without it. That is n + log n + k trials instead of 2ⁿ; the set is minimal in that no member can go,
not proved to be the smallest of all.
"""

from collections.abc import Callable, Sequence

from gaussport.export.progress import Watch, unwatched

Harm = Callable[[frozenset[str]], float]
"""How bad the model is with these layers kept: at most 1 is good; infinite when its numbers are not finite."""


def smallest_set(layers: Sequence[str], harm: Harm, watch: Watch = unwatched) -> list[str] | None:
    """A minimal set of layers to keep, in the order of `layers`; None when not even all of them help. `watch` is shown the
    longest part of the search: the layers, one by one."""
    everything = frozenset(layers)
    if harm(everything) > 1:
        return None
    shown = watch(iter(layers), len(layers), "searching for the layers to keep")
    alone = {layer: harm(everything - {layer}) for layer in shown}  # this one narrow, all others wide
    ranked = sorted(layers, key=lambda layer: -alone[layer])
    least, most = 0, len(ranked)  # harm is above 1 with `least - 1` kept, and at most 1 with `most`
    while least < most:
        middle = (least + most) // 2
        if harm(frozenset(ranked[:middle])) <= 1:
            most = middle
        else:
            least = middle + 1
    kept = set(ranked[:most])
    for layer in reversed(ranked[:most]):
        if harm(frozenset(kept - {layer})) <= 1:
            kept.discard(layer)
    return [layer for layer in layers if layer in kept]
