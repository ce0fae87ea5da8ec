"""Rows of any length, batched with rows of about theirs: one batcher for each length, behind one bound.

    answer(rows) ──by length──▶ batcher of 64 tokens ──▶ its thread ──▶ logits ──▶ in the request's order
                  └──────────▶ batcher of 96 tokens ──▶ its thread ──┘
                               …

Each length has its own inference thread: a short text neither shares a batch with a long one nor stands behind it. A batch
has no more than `BATCH_TOKENS` tokens, so that the batches of all lengths together stay within a memory that is known. A
request of many rows brings a few batches' worth at a time and lets others between.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from gaussport.serving.batcher import Batcher, BatchLimits, Place
from gaussport.serving.errors import RequestError, stopping
from gaussport.serving.text.lengths import fitting, lengths_up_to
from gaussport.serving.waiting import Answer, Rows

BATCH_TOKENS = 16_384
"""Tokens in one batch, padding included; a single longer row is a batch of its own."""
_BATCHES_AT_A_TIME = 2

Row = TypeVar("Row")


@dataclass(frozen=True)
class Ragged(Generic[Row]):
    """What a queue is told of its rows: how long one is, and how some are laid out as an array of one length."""

    length: Callable[[Row], int]
    lay_out: Callable[[Sequence[Row], int], Rows]


@dataclass
class LengthQueue(Generic[Row]):
    """Has the place of a `Batcher` for rows of up to `longest` tokens. `run` is called by several threads at once."""

    run: Callable[[Rows], Rows]
    limits: BatchLimits
    """Its `max_batch` is the largest of any length."""
    rows: Ragged[Row]
    longest: int
    least: int = 1
    """The smallest batch that the runtime takes."""
    sizes: Callable[[int], tuple[int, ...]] = lambda most: ()
    """Of a largest batch, the sizes that the runtime may see; none for any."""
    check: Callable[[Rows], None] = lambda logits: None
    observe: Callable[[int, float], None] = lambda size, seconds: None
    observe_held: Callable[[int], None] = lambda change: None
    observe_tokens: Callable[[int], None] = lambda tokens: None
    """Called with the tokens of rows that were answered, padding not among them."""
    clock: Callable[[], float] = time.monotonic
    _batchers: dict[int, Batcher] = field(init=False)
    _closed: bool = False

    def __post_init__(self) -> None:
        self._batchers = {length: self._batcher(length) for length in lengths_up_to(self.longest)}

    def _batcher(self, length: int) -> Batcher:
        most = self.most_rows(length)
        limits = replace(self.limits, max_batch=most, sizes=self.sizes(most))
        return Batcher(self.run, limits, self.check, self.observe, self.observe_held, self.clock)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._batchers)

    @property
    def held(self) -> int:
        """Rows that count against the bound."""
        return sum(batcher.held for batcher in self._batchers.values())

    def most_rows(self, length: int) -> int:
        """The largest batch of rows of this length."""
        return max(self.least, min(self.limits.max_batch, BATCH_TOKENS // length))

    def start(self) -> None:
        for batcher in self._batchers.values():
            batcher.start()

    async def close(self) -> None:
        """Refuse what waits and what comes, let the batches that run end, and stop."""
        self._closed = True
        await asyncio.gather(*(batcher.close() for batcher in self._batchers.values()))

    def expect_room(self, within_s: float) -> None:
        """RequestError 429 when the queue is full: for a request whose body need not be read to refuse it. Whether there is
        time enough depends on the rows' lengths, and is asked when they are known."""
        if self._closed:
            raise stopping()
        held = self.held
        if held >= self.limits.queue_size:
            wait_s = max(batcher.retry_after_s() for batcher in self._batchers.values())
            raise RequestError(f"the queue is full ({held} rows): retry after {wait_s} s", "queue_full", wait_s)

    async def answer(self, rows: Sequence[Row], deadline: float, urgent: bool = False) -> Answer:
        """The answers of a request's rows, in their order. Raises what `Batcher.place` and `Place.answer` raise."""
        self.expect_room(deadline - self.clock())
        if len(rows) == 1:
            return await self._of_length(self._fitting(rows[0]), rows, deadline, urgent)
        groups: dict[int, list[int]] = {}
        for number, row in enumerate(rows):
            groups.setdefault(self._fitting(row), []).append(number)
        works = [self._of_length(length, [rows[n] for n in numbers], deadline, urgent) for length, numbers in groups.items()]
        answers = await _all(works)
        logits = np.empty((len(rows), *answers[0].logits.shape[1:]), dtype=answers[0].logits.dtype)
        for numbers, answer in zip(groups.values(), answers, strict=True):
            logits[numbers] = answer.logits
        return _joined(logits, answers)

    def _fitting(self, row: Row) -> int:
        return fitting(self.rows.length(row), self.lengths)

    async def _of_length(self, length: int, rows: Sequence[Row], deadline: float, urgent: bool) -> Answer:
        batcher, answers = self._batchers[length], list[Answer]()
        step = min(batcher.limits.max_batch * _BATCHES_AT_A_TIME, self.limits.queue_size)
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            within_s = deadline - self.clock()
            # One that was let in is not turned away half-way.
            place = Place(batcher, len(some)) if answers else batcher.place(len(some), within_s)
            with place:
                answers.append(await place.answer(self.rows.lay_out(some, length), deadline, urgent))
            self.observe_tokens(sum(map(self.rows.length, some)))
        return answers[0] if len(answers) == 1 else _joined(np.concatenate([answer.logits for answer in answers]), answers)


def _joined(logits: Rows, answers: Sequence[Answer]) -> Answer:
    return Answer(logits, min(answer.queue_s for answer in answers), sum(answer.inference_s for answer in answers))


async def _all(works: Sequence[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """The results of all; the first that fails, or a cancelled caller, cancels the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
