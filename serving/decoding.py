"""Pictures to pixels, off the event loop, in as many threads as there are cores and no more memory than is set aside."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import GaussportError, ImageError
from gaussport.models.image.decode import ImageLimits, open_picture
from gaussport.models.image.prepare import prepare
from gaussport.models.image.preprocess import Preprocessing
from gaussport.serving.cores import after_the_event_loop
from gaussport.serving.metrics import Metrics
from gaussport.serving.pixel_room import PixelRoom
from gaussport.serving.waiting import Rows

LARGEST_AT_ONCE = 2
"""Pictures of the largest allowed size that may be decoded at one moment; of smaller ones as many as there are threads."""

Outcome = tuple[str, ...] | GaussportError
"""Of one picture: what its sender should know of it, or why it cannot be used."""


def prepared(
    picture: bytes, preprocessing: Preprocessing, row: NDArray[np.float32], limits: ImageLimits, room: PixelRoom
) -> Outcome:
    """Write a picture to its row [C, H, W] as the model sees it."""
    try:
        opened = open_picture(picture, limits)
        with room.reserved(opened.pixels):
            return prepare(opened, preprocessing, out=row).warnings
    except ImageError as error:
        return error


@dataclass(frozen=True)
class Prepared:
    """A request's pictures as the model sees them: the rows [n, C, H, W] of the good ones, and the outcome of each."""

    rows: Rows
    outcomes: list[Outcome]
    seconds: float

    def raise_first(self) -> None:
        """Raise the first picture's error, if there is one."""
        for outcome in self.outcomes:
            if isinstance(outcome, GaussportError):
                raise outcome


class Decoder:
    """A bounded pool. What waits for it holds a place in a model's queue, so its backlog is bounded too."""

    def __init__(self, threads: int, limits: ImageLimits, metrics: Metrics) -> None:
        self.pool = ThreadPoolExecutor(threads, "decode", after_the_event_loop)
        self._limits = limits
        self._metrics = metrics
        self._room = PixelRoom(LARGEST_AT_ONCE * limits.max_pixels)

    async def prepare(self, pictures: list[bytes | GaussportError], preprocessing: Preprocessing) -> Prepared:
        """Every picture written to its row, or its error, in order."""
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        rows = np.empty((len(pictures), *preprocessing.tensor_shape), dtype=np.float32)
        work = [
            loop.run_in_executor(self.pool, self._one, picture, preprocessing, rows[index])
            for index, picture in enumerate(pictures)
        ]
        outcomes = [await work[0]] if len(work) == 1 else list(await asyncio.gather(*work))
        good = [index for index, outcome in enumerate(outcomes) if not isinstance(outcome, GaussportError)]
        return Prepared(rows if len(good) == len(rows) else rows[good], outcomes, time.monotonic() - began)

    def _one(self, picture: bytes | GaussportError, preprocessing: Preprocessing, row: NDArray[np.float32]) -> Outcome:
        if isinstance(picture, GaussportError):
            return picture
        began = time.monotonic()
        outcome = prepared(picture, preprocessing, row, self._limits, self._room)
        if not isinstance(outcome, ImageError):
            self._metrics.decode_seconds.observe(time.monotonic() - began)
        return outcome
