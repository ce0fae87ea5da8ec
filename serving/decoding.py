"""Pictures to pixels, off the event loop, in as many threads as there are cores."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import GaussportError, ImageError
from gaussport.models.image.decode import ImageLimits, decode
from gaussport.models.image.preprocess import Preprocessing, to_pixels
from gaussport.serving.metrics import Metrics


@dataclass(frozen=True)
class Prepared:
    """One picture as the model sees it, [C, H, W], and what its sender should know."""

    pixels: NDArray[np.float32]
    warnings: tuple[str, ...]


class Decoder:
    """A bounded pool. What waits for it holds a place in a model's queue, so its backlog is bounded too."""

    def __init__(self, threads: int, limits: ImageLimits, metrics: Metrics) -> None:
        self.pool = ThreadPoolExecutor(threads, "decode")
        self._limits = limits
        self._metrics = metrics

    async def prepare(
        self, pictures: list[bytes | GaussportError], preprocessing: Preprocessing
    ) -> list[Prepared | GaussportError]:
        """Every picture prepared, or its error, in order."""
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            *(loop.run_in_executor(self.pool, self._one, picture, preprocessing) for picture in pictures)
        )

    def _one(self, picture: bytes | GaussportError, preprocessing: Preprocessing) -> Prepared | GaussportError:
        if isinstance(picture, GaussportError):
            return picture
        began = time.monotonic()
        try:
            decoded = decode(picture, preprocessing.background, self._limits)
        except ImageError as error:
            return error
        prepared = Prepared(to_pixels(decoded.rgb, preprocessing), decoded.warnings)
        self._metrics.decode_seconds.observe(time.monotonic() - began)
        return prepared
