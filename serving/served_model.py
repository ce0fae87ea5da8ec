"""A bundle that is being served: its runtime, its queue and what it has done."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import ServingError, UsageError
from gaussport.export.bundle.store import Bundle
from gaussport.serving.batcher import Batcher, BatchLimits, Place
from gaussport.serving.errors import RequestError
from gaussport.serving.metrics import Metrics, ModelSeries
from gaussport.serving.provider_options import ProviderOptions
from gaussport.serving.runtime import Runtime
from gaussport.serving.settings import Settings
from gaussport.serving.shares import Shares, cores_each, shares
from gaussport.serving.statistics import Statistics
from gaussport.serving.streams.steps import LONGEST_CHUNK, Step, StepModel, check_finite
from gaussport.serving.text import running
from gaussport.serving.text.queue import LengthQueue
from gaussport.serving.text.reader import TextReader, Tokens
from gaussport.serving.waiting import Answer

Rows = NDArray[np.float32]


class ServedModel:
    """One bundle behind one queue. Loading it reads, checks and warms it up: after that it is ready.

    `with` it for as long as a request needs it: a model that is replaced or unloaded answers those before it goes.
    """

    def __init__(
        self, bundle: Bundle, settings: Settings, metrics: Metrics, name: str | None = None, version: str | None = None
    ) -> None:
        self.bundle, self.manifest = bundle, bundle.manifest
        self.name, self.version = name or bundle.manifest.name, version or bundle.manifest.version
        self.labels = bundle.manifest.labels
        share = shares_for(settings, self.manifest.takes_text)
        self.runtime = Runtime(bundle, settings.provider, share.threads, ProviderOptions.of(settings))
        self.max_batch = _max_batch(bundle, self.runtime, settings.max_batch)
        self.statistics = Statistics()
        limits = BatchLimits(self.max_batch, settings.max_delay_ms, settings.queue_size)
        self._series = metrics.model(self.name, self.version, self.runtime.label)
        observe = partial(_observe_batch, self.statistics, self._series)  # and not a method: the cycle would outlive us
        self._reader: TextReader | None = None
        self.steps: StepModel | None = None
        """What reads streams; None for a model, or a server, that has none."""
        self._step_queue: LengthQueue[Step] | None = None
        self.at_end: list[Callable[[ServedModel], None]] = []
        """Called when this is let go, before it is closed."""
        self.queue: Batcher | LengthQueue[Tokens]
        if self.manifest.takes_text:
            self.queue = self._queue_of_texts(limits, observe, settings)
            if self.manifest.stream is not None and settings.workers == 1 and settings.engine == "plain":
                self.steps = self._step_model(settings)
                self._step_queue = self._queue_of_steps(self.steps, limits, observe)
        else:
            limits = _warmed_up(self.runtime, limits, settings.max_batch)
            if self.runtime.provider == "cpu":
                limits = replace(limits, at_once=share.at_once)
            self.queue = Batcher(self.runtime.run, limits, _check_finite, observe, self._series.held)
        self._default_timeout_ms = settings.timeout_ms
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    def _queue_of_texts(
        self, limits: BatchLimits, observe: Callable[[int, float], None], settings: Settings
    ) -> LengthQueue[Tokens]:
        if settings.cuda_graph:
            raise UsageError(f"--cuda-graph records batches of one shape and {self.name} reads texts of any: leave it out")
        self._reader = TextReader(self.bundle, settings.max_tokens)
        spec = self._reader.spec
        queue = LengthQueue(
            run=running.TokenRunner(self.runtime, spec.pad, self._series.computed_tokens),
            limits=limits,
            rows=running.rows_of(spec),
            longest=spec.max_tokens,
            least=self.runtime.min_batch,
            sizes=partial(_sizes, self.runtime),
            check=_check_finite,
            observe=observe,
            observe_held=self._series.held,
            observe_tokens=self._series.text_tokens,
        )
        running.warm_up(queue, self.runtime)
        return queue

    def __enter__(self) -> Self:
        self._users += 1
        self._unused.clear()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._users -= 1
        if not self._users:
            self._unused.set()

    def count_answered(self, images: int) -> None:
        """Images of an inference request that is being answered, for the metrics."""
        self._series.images_ok.inc(images)

    @property
    def busy(self) -> bool:
        """Whether a request has it."""
        return self._users > 0

    def _step_model(self, settings: Settings) -> StepModel:
        # An engine is of model.onnx alone; the CPU is fast enough for a chunk.
        provider = "cuda" if self.runtime.provider == "cuda" else "cpu"
        return StepModel(self.bundle, provider, shares_for(settings, text=True).threads, ProviderOptions.of(settings))

    def _queue_of_steps(
        self, steps: StepModel, limits: BatchLimits, observe: Callable[[int, float], None]
    ) -> LengthQueue[Step]:
        return LengthQueue(
            run=steps.run,
            limits=limits,
            rows=steps.rows(),
            longest=LONGEST_CHUNK,
            check=check_finite,
            observe=observe,
            observe_held=self._series.held,
        )

    def start(self) -> None:
        """Begin to answer, on the running event loop."""
        self.queue.start()
        if self._step_queue is not None:
            self._step_queue.start()

    async def close(self) -> None:
        """Refuse what waits and what comes, and let the batches that run end."""
        await self.queue.close()
        if self._step_queue is not None:
            await self._step_queue.close()

    @property
    def batcher(self) -> Batcher:
        """The queue of a model of pictures."""
        assert isinstance(self.queue, Batcher)  # whoever has a model of text goes by its tokens
        return self.queue

    @property
    def reader(self) -> TextReader:
        """What makes tokens of the texts of a model that reads text."""
        assert self._reader is not None
        return self._reader

    async def retire(self, patience_s: float) -> None:
        """Answer the requests that have this model, within `patience_s`, refuse what is left, and free it."""
        try:
            async with asyncio.timeout(patience_s):
                await self._unused.wait()
        except TimeoutError:
            pass
        for end in self.at_end:
            end(self)
        await self.close()
        self._series.forget()

    def deadline(self, timeout_ms: float | None, arrived: float) -> float:
        """The moment, in the batcher's clock, from which a request's answer is too late."""
        return arrived + (timeout_ms or self._default_timeout_ms) / 1000

    def seconds_until(self, deadline: float) -> float:
        return deadline - self.queue.clock()

    async def answer(self, place: Place, rows: Rows, deadline: float, urgent: bool, decode_s: float = 0.0) -> Answer:
        """The logits of a request's rows. `decode_s` is what decoding its pictures took, for the statistics."""
        return await self._counted(place.answer(rows, deadline, urgent), len(rows), decode_s)

    async def answer_texts(self, rows: Sequence[Tokens], deadline: float, urgent: bool, read_s: float = 0.0) -> Answer:
        """The logits of a request's rows of tokens. `read_s` is what making them took, for the statistics."""
        assert isinstance(self.queue, LengthQueue)
        return await self._counted(self.queue.answer(rows, deadline, urgent), len(rows), read_s)

    async def advance(self, steps: Sequence[Step], deadline: float, urgent: bool) -> Answer:
        """The logits and states of streams after their next tokens, as records."""
        assert self._step_queue is not None
        return await self._step_queue.answer(steps, deadline, urgent)

    async def _counted(self, answering: Awaitable[Answer], rows: int, before_s: float) -> Answer:
        began = self.queue.clock()
        try:
            answer = await answering
        except BaseException:
            self.statistics.fail.add(before_s + self.queue.clock() - began)
            raise
        self._series.queue_seconds.observe(answer.queue_s)
        self.statistics.decode.add(before_s)
        self.statistics.answered(rows, answer.queue_s, answer.inference_s, before_s + self.queue.clock() - began)
        return answer


def _observe_batch(statistics: Statistics, series: ModelSeries, size: int, seconds: float) -> None:
    statistics.batch(size, seconds)
    series.batch(size, seconds)


def shares_for(settings: Settings, text: bool) -> Shares:
    """Of pictures and texts: a text's queues, one for each length, run side by side as it is."""
    cores = cores_each(settings)
    return Shares(settings.threads or cores) if text else shares(settings, cores)


def _max_batch(bundle: Bundle, runtime: Runtime, asked: int | None) -> int:
    fixed, most = runtime.fixed_batch, runtime.max_batch
    if fixed is not None:
        if asked not in (None, fixed):
            raise ServingError(
                f"the graph of {bundle.path} takes batches of {fixed} only: leave --max-batch out, or export it with a "
                "dynamic batch"
            )
        return fixed
    size = asked or most
    if size < runtime.min_batch:
        raise UsageError(
            f"--max-batch {size} is less than the {runtime.min_batch} that the engine {runtime.label} of {bundle.path} "
            "begins with: allow more, or build an engine for smaller batches"
        )
    if size > most:
        limit = "was proved with" if most == bundle.manifest.max_batch else "has an engine for"
        raise UsageError(f"--max-batch {size} is more than the {most} that {bundle.path} {limit}")
    return size


def _sizes(runtime: Runtime, max_batch: int) -> tuple[int, ...]:
    """The batch sizes that the runtime is to see; none when it takes any size equally well.

    A GPU provider chooses kernels, captures graphs or fills an engine profile for each new shape: few shapes, all of
    them warmed up, beat exact ones. On a CPU a padding row costs as much as a real one.
    """
    if runtime.fixed_batch is not None:
        return (runtime.fixed_batch,)
    if runtime.provider == "cpu":
        return ()
    least = runtime.min_batch
    return tuple(sorted({least, *(size for size in _powers_of_two(max_batch) if size > least), max_batch}))


def _powers_of_two(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length())]


def _warmed_up(runtime: Runtime, limits: BatchLimits, asked: int | None) -> BatchLimits:
    """Run the sizes that will be run, before the first client comes. On a CPU powers of two stand for all of them, and
    batches are of the size that is quickest there unless one was asked for."""
    sizes = _sizes(runtime, limits.max_batch)
    for size in sizes:
        runtime.run(runtime.blank(size))
    if sizes:
        return replace(limits, sizes=sizes)
    if asked is None:
        return replace(limits, max_batch=runtime.quickest_batch(limits.max_batch))
    runtime.warm_up(asked)
    return limits


def _check_finite(logits: Rows) -> None:
    """Logits that are not finite are no answer: the batch is run again row by row and those at fault are told."""
    if not math.isfinite(float(np.sum(logits, dtype=np.float64))):
        raise RequestError("the model's answer is not finite: the input is out of range", "not_finite")
