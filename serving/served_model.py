"""A bundle that is being served: its runtime and its queue; and the table of all of them."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import ServingError, UsageError
from gaussport.export.bundle.store import Bundle
from gaussport.serving.batcher import Batcher, BatchLimits, Place
from gaussport.serving.errors import RequestError
from gaussport.serving.metrics import Metrics
from gaussport.serving.runtime import Runtime
from gaussport.serving.settings import Settings
from gaussport.serving.waiting import Answer

Rows = NDArray[np.float32]


class ServedModel:
    """One bundle behind one queue. Loading it reads, checks and warms it up: after that it is ready."""

    def __init__(self, bundle: Bundle, settings: Settings, metrics: Metrics) -> None:
        self.manifest = bundle.manifest
        self.name, self.version, self.labels = bundle.manifest.name, bundle.manifest.version, bundle.manifest.labels
        self.runtime = Runtime(bundle, settings.provider, settings.threads)
        self.max_batch = _max_batch(bundle, self.runtime.fixed_batch, settings.max_batch)
        self.batcher = Batcher(
            _finite(self.runtime.run), BatchLimits(self.max_batch, settings.max_delay_ms, settings.queue_size)
        )
        self.batcher.observe = metrics.model(
            self.name, lambda: float(self.batcher.held), version=self.version, provider=self.runtime.provider
        )
        self._default_timeout_ms = settings.timeout_ms
        self._queue_seconds = metrics.queue_seconds.labels(self.name)
        self.runtime.warm_up(self.max_batch)

    def deadline(self, timeout_ms: float | None, arrived: float) -> float:
        """The moment, in the batcher's clock, from which a request's answer is too late."""
        return arrived + (timeout_ms or self._default_timeout_ms) / 1000

    def seconds_until(self, deadline: float) -> float:
        return deadline - self.batcher.clock()

    async def answer(self, place: Place, rows: Rows, deadline: float, urgent: bool) -> Answer:
        answer = await place.answer(rows, deadline, urgent)
        self._queue_seconds.observe(answer.queue_s)
        return answer


class ServedModels:
    """Every model that this server has, by name and version."""

    def __init__(self, bundles: Sequence[Bundle], settings: Settings, metrics: Metrics) -> None:
        self._models: dict[str, ServedModel] = {}
        self.draining = False
        for bundle in bundles:
            name = bundle.manifest.name
            if name in self._models:
                raise UsageError(f"{bundle.path} is a second model named {name}: export one of them with another name")
            self._models[name] = ServedModel(bundle, settings, metrics)

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def find(self, name: str | None = None, version: str | None = None) -> ServedModel:
        """The model asked for; the first when none is named."""
        model = next(iter(self)) if name is None else self._models.get(name)
        if model is None:
            raise RequestError(f"this server has no model of that name: it has {', '.join(self.names)}", "unknown_model")
        if version is not None and version != model.version:
            raise RequestError(f"{model.name} has no such version: it has {model.version}", "unknown_version")
        return model


def _max_batch(bundle: Bundle, fixed: int | None, asked: int | None) -> int:
    proven = bundle.manifest.max_batch
    size = asked or fixed or proven
    if fixed is not None and (fixed, size) != (1, 1):
        raise ServingError(f"the graph of {bundle.path} takes batches of {fixed} only: export it with a dynamic batch")
    if size > proven:
        raise UsageError(f"--max-batch {size} is more than the {proven} that {bundle.path} was proved with")
    return size


def _finite(run: Callable[[Rows], Rows]) -> Callable[[Rows], Rows]:
    """Logits that are not finite are no answer: the batch is run again row by row and those at fault are told."""

    def checked(rows: Rows) -> Rows:
        logits = run(rows)
        if not math.isfinite(float(np.sum(logits, dtype=np.float64))):
            raise RequestError("the model's answer is not finite: the pixels are out of range", "not_finite")
        return logits

    return checked
