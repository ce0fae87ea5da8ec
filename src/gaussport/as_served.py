"""A bundle's engine and its explanation, run as the server would run them: the same libraries, checks and refusals.

It stands above `export` and `serving`, which do not know each other: what `gaussport verify` proves is then true of what is
served.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.store import Bundle
from gaussport.export.inputs import Inputs, part_of, rows_of

if TYPE_CHECKING:
    from gaussport.serving.explain.operators import View


class ServedEngine:
    """One engine of a bundle: its inputs, each [batch, …] → logits [batch, classes]."""

    def __init__(self, bundle: Bundle, name: str) -> None:
        """Raises a GaussportError, whose sentence says why, when this machine cannot run the engine."""
        from gaussport.serving.provider_options import ProviderOptions
        from gaussport.serving.rows import packed
        from gaussport.serving.runtime import Runtime

        self._packed = packed
        provider = bundle.manifest.engines[name].builder
        self._runtime = Runtime(bundle, provider, options=ProviderOptions(engine=name))

    def run(self, inputs: Inputs) -> NDArray[np.float32]:
        """Logits, at most as many rows at a time as the engine's profile takes."""
        most = self._runtime.max_batch
        parts = [part_of(inputs, start, start + most) for start in range(0, rows_of(inputs), most)]
        return np.concatenate([self._runtime.run(self._packed(part)) for part in parts])


class ServedExplanation:
    """A bundle's `explain.onnx`, run as `gaussport explain` and `/v1/explain` run it.

    Attributes:
        layers: the names of the layers that it explains, in the order data meets them.
    """

    def __init__(self, bundle: Bundle) -> None:
        """Raises a GaussportError, whose sentence says why, when it cannot be run."""
        from gaussport.serving.explain.explainer import Explainer

        self._explainer = Explainer(bundle)
        self.layers = self._explainer.layers

    def run(self, inputs: Inputs) -> NDArray[np.float32]:
        """The logits [batch, classes] of the graph that explains."""
        return self._explainer.run_inputs(inputs).logits

    def tensors(self, inputs: Inputs) -> dict[str, NDArray[np.generic]]:
        """Everything that is told of the batch, by `LAYER/NAME`."""
        layers = self._explainer.run_inputs(inputs).layers
        return {f"{layer.name}/{name}": tensor for layer in layers for name, tensor in layer.tensors.items()}

    def row_errors(self, inputs: Inputs) -> dict[str, float]:
        """By layer: how far an implied attention row of the first of the batch is from its due sum, at most."""
        views = self._explainer.run_inputs(inputs).views(0)
        return {view.name: max(_row_error(view, head) for head in range(view.heads)) for view in views}


def _row_error(view: "View", head: int) -> float:
    sums = np.stack([view.affinity(head, row).sum(axis=(1, 2)) for row in range(view.grid[0])])
    return float(np.abs(sums - view.sums(head)).max())
