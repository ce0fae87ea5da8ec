"""The queue of one model: requests come in with one or more images, batches go to the runtime, rows go back.

    place(images) ──decode──▶ Place.answer(rows) ──▶ queue ──▶ batch ──▶ runtime ──▶ rows to their requests

The queue is counted in images and bounded, including those still being decoded. A batch closes when it is full or when
its oldest request has waited `max_delay_ms`. Whoever left (deadline, disconnect) is gone before a batch forms. A batch
that fails is run again request by request, so that only those at fault fail. All times are monotonic.

Urgent requests go before normal ones, but of every `_URGENT_RUNS + 1` batches that both wait for one begins with the
normal: an endless stream of urgent requests takes four fifths of the model, not all of it.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from gaussport.serving.batch_buffer import BatchBuffer
from gaussport.serving.drain_rate import DrainRate
from gaussport.serving.errors import RequestError, stopping
from gaussport.serving.patience import Patience, TimeIsOverError
from gaussport.serving.waiting import Answer, Part, Rows, Waiting, split

log = logging.getLogger("gaussport.serving")

_RETRY_AFTER_LIMIT_S = 60
_URGENT_RUNS = 4


@dataclass(frozen=True)
class BatchLimits:
    """How batches form and how much may wait."""

    max_batch: int
    max_delay_ms: float = 2.0
    queue_size: int = 256
    """Images that wait or are being decoded; those inside the runtime no longer count."""
    sizes: tuple[int, ...] = ()
    """The only batch sizes that the runtime may see, ascending, the last one max_batch; none for any size."""
    at_once: int = 1
    """Batches that run side by side."""


class Place:
    """Room in the queue for a request's images, held from before they are decoded until a batch takes them."""

    def __init__(self, batcher: "Batcher", images: int) -> None:
        self._batcher = batcher
        self._images = images
        batcher.hold(images)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.keep(0)

    def keep(self, images: int) -> None:
        """Give back what is held beyond this many images."""
        if images != self._images:
            self._batcher.hold(images - self._images)
            self._images = images

    def take(self, images: int) -> None:
        self.keep(self._images - images)

    async def answer(self, rows: Rows, deadline: float, urgent: bool = False) -> Answer:
        """Queue the rows and wait. `deadline` is in the batcher's clock."""
        if not 0 < len(rows) <= self._images:
            raise ValueError(f"{len(rows)} rows in a place for {self._images}")
        self.keep(len(rows))
        return await self._batcher.wait_for(self, rows, deadline, urgent)


@dataclass
class Batcher:
    """One queue and its workers, for the life of a model. `run` is called in threads of its own, `at_once` at a time."""

    run: Callable[[Rows], Rows]
    limits: BatchLimits
    check: Callable[[Rows], None] = lambda logits: None
    """Raises when a batch's logits are no answer; never sees padding."""
    observe: Callable[[int, float], None] = lambda size, seconds: None
    """Called with each batch's images and seconds."""
    observe_held: Callable[[int], None] = lambda change: None
    """Called with each change of `held`."""
    clock: Callable[[], float] = time.monotonic
    drain: DrainRate = field(default_factory=DrainRate)
    held: int = 0
    """Images that count against the queue's bound."""
    _urgent_runs: int = 0
    """Batches in a row that began with urgent requests while normal ones waited."""
    _urgent: deque[Waiting] = field(default_factory=deque)
    _normal: deque[Waiting] = field(default_factory=deque)
    _rows_waiting: int = 0
    """In both queues, those of requests that failed and are not yet removed among them."""
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _forming: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Whose holder waits for the next batch: the others run one, or wait for their turn."""
    _executor: ThreadPoolExecutor = field(init=False)
    _workers: list[asyncio.Task[None]] = field(default_factory=list)
    _closed: bool = False

    def __post_init__(self) -> None:
        self._executor = ThreadPoolExecutor(self.limits.at_once, "inference")

    def hold(self, change: int) -> None:
        if not self.held:
            self.drain.begin(self.clock())
        self.held += change
        self.observe_held(change)

    def start(self) -> None:
        """Begin to serve, on the running event loop."""
        for _ in range(self.limits.at_once):
            worker = self._serve(BatchBuffer(self.limits.sizes))
            self._workers.append(asyncio.create_task(worker, name="batcher"))

    async def close(self) -> None:
        """Refuse what waits and what comes, let the batches in the runtime end, and stop."""
        self._closed = True
        for request in (*self._urgent, *self._normal):
            request.fail(stopping())
        self._arrived.set()
        await asyncio.gather(*self._workers)
        await asyncio.to_thread(self._executor.shutdown, wait=True)

    def place(self, images: int, within_s: float = math.inf) -> Place:
        """Room for a request, or RequestError: 503 when closing, 429 with the time after which there will be room when
        the queue is full or so long, at the measured rate, that an answer within `within_s` cannot be hoped for."""
        self._admit(images, within_s)
        return Place(self, images)

    def _admit(self, images: int, within_s: float) -> None:
        if self._closed:
            raise stopping()
        if images > self.limits.queue_size:
            raise RequestError(
                f"{images} images in one request and the queue holds {self.limits.queue_size}: send fewer", "too_many_images"
            )
        if self.held + images > self.limits.queue_size or (self.held and self.drain.seconds_for(self.held) > within_s):
            raise self._full()

    def expect_room(self, within_s: float) -> None:
        """RequestError as `place` would raise for one image: for a request whose body need not be read to refuse it."""
        self._admit(1, within_s)

    def _full(self) -> RequestError:
        wait_s = self.retry_after_s()
        return RequestError(f"the queue is full ({self.held} wait): retry after {wait_s} s", "queue_full", wait_s)

    def retry_after_s(self) -> int:
        """Whole seconds until what waits now will have been answered at the measured rate."""
        return min(_RETRY_AFTER_LIMIT_S, max(1, math.ceil(self.drain.seconds_for(self.held))))

    async def wait_for(self, place: Place, rows: Rows, deadline: float, urgent: bool) -> Answer:
        if self._closed:
            raise stopping()
        now = self.clock()
        loop = asyncio.get_running_loop()
        request = Waiting(rows, deadline, now, place, loop.create_future())
        queue = self._urgent if urgent else self._normal
        idle = not self._urgent and not self._normal
        queue.append(request)
        self._rows_waiting += len(rows)
        if (
            idle or self._rows_waiting >= self.limits.max_batch
        ):  # else the batch that forms has its time already: no need to wake its worker
            self._arrived.set()
        timer = loop.call_later(max(0.0, deadline - now), request.expire)
        try:
            return await request.answer
        finally:
            timer.cancel()
            request.answer.cancel()
            if request.left and request in queue:
                queue.remove(request)
                self._rows_waiting -= request.left

    async def _serve(self, buffer: BatchBuffer) -> None:
        while not self._closed:
            async with self._forming:
                await self._batch_due()
                parts = self._form()
            if parts:
                await self._answer(parts, buffer)

    async def _batch_due(self) -> None:
        """Return when the next batch should close, or the batcher does."""
        while not self._closed:
            self._arrived.clear()
            oldest = min((queue[0].arrived for queue in (self._urgent, self._normal) if queue), default=None)
            if oldest is None:
                await self._arrived.wait()
                continue
            remaining_s = oldest + self.limits.max_delay_ms / 1000 - self.clock()
            if remaining_s <= 0 or self._rows_waiting >= self.limits.max_batch:
                return
            with contextlib.suppress(TimeIsOverError), Patience(remaining_s):
                await self._arrived.wait()

    def _form(self) -> list[Part]:
        """Take up to max_batch rows, the urgent mostly first, each queue in its order; a large request is split."""
        parts: list[Part] = []
        room, now = self.limits.max_batch, self.clock()
        for queue in self._order():
            while queue and room:
                request = queue[0]
                if now >= request.deadline:
                    request.expire()
                if request.answer.done():
                    self._rows_waiting -= request.left
                    queue.popleft()
                    continue
                count = min(room, request.left)
                parts.append(Part(request, request.taken, count))
                if request.taken == 0:
                    request.started = now
                request.taken += count
                self._rows_waiting -= count
                request.place.take(count)
                room -= count
                if request.left == 0:
                    queue.popleft()
        return parts

    def _order(self) -> tuple[deque[Waiting], deque[Waiting]]:
        if not self._urgent or not self._normal:
            self._urgent_runs = 0
        elif self._urgent_runs == _URGENT_RUNS:
            self._urgent_runs = 0
            return self._normal, self._urgent
        else:
            self._urgent_runs += 1
        return self._urgent, self._normal

    async def _answer(self, parts: list[Part], buffer: BatchBuffer) -> None:
        try:
            await self._run(parts, buffer)
        except Exception as error:  # noqa: BLE001 - whatever the runtime raises, the worker must live on
            log.warning("a batch of %d requests failed and is run one by one: %s", len(parts), error)
            for part in parts:
                try:
                    await self._run([part], buffer)
                except Exception as fault:  # noqa: BLE001 - as above
                    part.request.fail(_model_failed(fault))

    async def _run(self, parts: list[Part], buffer: BatchBuffer) -> None:
        images = sum(part.count for part in parts)
        began = self.clock()
        logits = await asyncio.get_running_loop().run_in_executor(self._executor, self._run_rows, parts, images, buffer)
        seconds = self.clock() - began
        self.drain.answered(images, self.clock())
        self.observe(images, seconds)
        for part, answer in zip(parts, split(logits, parts), strict=True):
            part.request.deliver(part.start, answer, seconds)

    def _run_rows(self, parts: list[Part], images: int, buffer: BatchBuffer) -> Rows:
        """In an inference thread: the rows side by side, through the model, without the padding."""
        rows = buffer.gather([part.rows for part in parts], images)
        logits = self.run(rows)
        if len(logits) != len(rows):
            raise ValueError(f"the model answered {len(logits)} rows for {len(rows)}")
        logits = logits[:images]
        self.check(logits)
        return logits


def _model_failed(fault: Exception) -> RequestError:
    if isinstance(fault, RequestError):
        return fault
    error = RequestError(f"the model failed on this input: {fault}", "model_failed")
    error.__cause__ = fault
    return error
