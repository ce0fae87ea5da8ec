"""What the attention looks at, over some of the pictures: numbers of every head, and the figures of one picture."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gaussport.errors import ImageError
from gaussport.models.image.decode import ImageLimits
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.explain.numbers import layer_explanations
from gaussport.serving.explain.operators import View
from gaussport.serving.explain.pictures import seen
from gaussport.serving.explain.seen import Picture
from gaussport.serving.explain.selection import Selection
from gaussport.serving.model_report.labelled import LabelledFiles

PICTURES = 16
"""Pictures that the numbers are means over, spread evenly over the data."""
_MOST_HEADS = 96
"""Heads that a figure shows."""


@dataclass
class AttentionSurvey:
    """Explains `chosen` pictures, one at a time; `heads` and `figures` tell of them once `run` has ended."""

    explainer: Explainer
    files: LabelledFiles
    chosen: Sequence[int]
    limits: ImageLimits
    figures: dict[str, bytes] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    _sums: dict[tuple[str, int], dict[str, list[float]]] = field(default_factory=dict)
    _dead: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def run(self) -> Iterator[int]:
        """Yields the index of each picture that is done."""
        spec = self.explainer.manifest.preprocessing
        for index in self.chosen:
            try:
                pixels = seen(self.files.paths[index], spec, self.limits)[0]
            except ImageError:  # it was readable a moment ago
                yield index
                continue
            views = self.explainer.run(pixels[np.newaxis]).views(0)
            self._count(views)
            if not self.figures:
                self._draw(index, Picture.of(pixels, spec), views)
            yield index

    def heads(self) -> list[dict[str, Any]]:
        """For each layer and head the means of its numbers; of responsibilities also the components that are dead in every
        picture."""
        return [
            {
                "layer": layer,
                "head": head,
                **{name: float(np.mean(values)) for name, values in found.items()},
                **({"dead_components": len(self._dead[layer, head])} if (layer, head) in self._dead else {}),
            }
            for (layer, head), found in self._sums.items()
        ]

    def _count(self, views: Sequence[View]) -> None:
        for layer in layer_explanations(views, Selection()):
            for head in layer["heads"]:
                key = (layer["name"], head["head"])
                found = self._sums.setdefault(key, defaultdict(list))
                for name, value in head.items():
                    if isinstance(value, float):
                        found[name].append(value)
                if "dead" in head:
                    self._dead[key] = self._dead.get(key, set(head["dead"])) & set(head["dead"])

    def _draw(self, index: int, picture: Picture, views: Sequence[View]) -> None:
        from gaussport.serving.explain.drawing import heads_figure, layers_figure, rendered

        apart = -(-sum(view.heads for view in views) // _MOST_HEADS)  # of a large model every so many layers
        selection = Selection(tuple(view.name for view in views[::apart]) if apart > 1 else ())
        self.shown = {"picture": self.files.name(index), "layers": [view.name for view in selection.views(views)]}
        self.figures = {
            "heads": rendered(heads_figure(picture, views, selection), "png"),
            "layers": rendered(layers_figure(views, selection), "png"),
        }


def spread(indices: Sequence[int], most: int) -> list[int]:
    """`most` of them, evenly spaced; all when there are fewer."""
    return [indices[place * len(indices) // most] for place in range(most)] if len(indices) > most else list(indices)
