"""A bundle's engine, run as the server would run it: the same libraries, checks and refusals.

It stands above `export` and `serving`, which do not know each other: what `gaussport verify` proves of an engine is then
true of what is served.
"""

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.store import Bundle


class ServedEngine:
    """One engine of a bundle: pixels [batch, C, height, width] → logits [batch, classes]."""

    def __init__(self, bundle: Bundle, name: str) -> None:
        """Raises a GaussportError, whose sentence says why, when this machine cannot run the engine."""
        from gaussport.serving.provider_options import ProviderOptions
        from gaussport.serving.runtime import Runtime

        provider = bundle.manifest.engines[name].builder
        self._runtime = Runtime(bundle, provider, options=ProviderOptions(engine=name))

    def run(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits, at most as many rows at a time as the engine's profile takes."""
        most = self._runtime.max_batch
        parts = [pixels[start : start + most] for start in range(0, len(pixels), most)]
        return np.concatenate([self._runtime.run(np.ascontiguousarray(part)) for part in parts])
