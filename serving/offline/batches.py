"""Pictures to rows, in order: a pool decodes ahead of the model, so that both have work all the time."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import ImageError
from gaussport.export.bundle.store import Bundle
from gaussport.models.image.decode import ImageLimits
from gaussport.serving.cores import after_the_event_loop, usable_cores
from gaussport.serving.decoding import LARGEST_AT_ONCE, Outcome, prepared
from gaussport.serving.offline.inputs import Item
from gaussport.serving.pixel_room import PixelRoom
from gaussport.serving.predictions import NOT_FINITE, best, probabilities
from gaussport.serving.provider_options import ProviderOptions
from gaussport.serving.report import Row
from gaussport.serving.runtime import Runtime
from gaussport.serving.settings import Settings

_BATCHES_AHEAD = 2
_WORTH_MEASURING = 100

Pixels = NDArray[np.float32]


class Classifier:
    """A bundle, its session and the threads that decode for it."""

    def __init__(self, bundle: Bundle, settings: Settings, top_k: int, pictures: float = math.inf) -> None:
        """`pictures` is how many there will be: few are answered before it is known which batch is the quickest."""
        self.runtime = Runtime(bundle, settings.provider, settings.threads, ProviderOptions.of(settings))
        self._manifest = bundle.manifest
        self._top_k = top_k
        self._size = self.runtime.fixed_batch or min(settings.max_batch or self.runtime.max_batch, self.runtime.max_batch)
        if settings.max_batch is None and pictures >= _WORTH_MEASURING:
            self._size = self.runtime.quickest_batch(self._size)
        self._limits = ImageLimits(settings.max_pixels, settings.max_side_ratio)
        self._room = PixelRoom(LARGEST_AT_ONCE * settings.max_pixels)
        self._pool = ThreadPoolExecutor(settings.decode_threads or usable_cores(), "decode", after_the_event_loop)

    def rows(self, items: Iterable[Item]) -> Iterator[Row]:
        """One row for each item, in order: a picture that cannot be used is a row with an error."""
        items = iter(items)
        ahead: deque[tuple[Item, Future[tuple[Pixels, Outcome]]]] = deque()
        while True:
            wanted = (1 + _BATCHES_AHEAD) * self._size - len(ahead)
            ahead.extend((item, self._pool.submit(self._decode, item)) for item in islice(items, wanted))
            if not ahead:
                return
            batch = [ahead.popleft() for _ in range(min(self._size, len(ahead)))]
            yield from self._answers([(item, *future.result()) for item, future in batch])

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _decode(self, item: Item) -> tuple[Pixels, Outcome]:
        row = np.empty(self._manifest.preprocessing.tensor_shape, dtype=np.float32)
        try:
            return row, prepared(item.read(), self._manifest.preprocessing, row, self._limits, self._room)
        except ImageError as error:
            return row, error

    def _answers(self, batch: list[tuple[Item, Pixels, Outcome]]) -> Iterator[Row]:
        good = [pixels for _, pixels, outcome in batch if isinstance(outcome, tuple)]
        logits = self._logits(np.stack(good)) if good else np.empty((0, len(self._manifest.labels)), np.float32)
        finite = np.logical_and.reduce(np.isfinite(logits), axis=1)
        scores = zip(probabilities(np.where(finite[:, None], logits, 0)) if good else (), finite, strict=True)
        for item, _, outcome in batch:
            if not isinstance(outcome, tuple):
                yield Row(item.name, error=str(outcome), code=getattr(outcome, "code", None))
                continue
            row, usable = next(scores)
            if usable:
                yield Row(item.name, best(row, self._manifest.labels, self._top_k), list(outcome))
            else:
                yield Row(item.name, error=NOT_FINITE, code="not_finite")

    def _logits(self, pixels: Pixels) -> Pixels:
        """Of each row; a graph of one batch size gets zeros for the rows that lack."""
        lacking = (self.runtime.fixed_batch or 0) - len(pixels)
        if lacking > 0:
            pixels = np.concatenate([pixels, np.zeros((lacking, *pixels.shape[1:]), dtype=np.float32)])
        logits = self.runtime.run(pixels)
        return logits[: len(logits) - max(0, lacking)]
