"""What waits in a batcher's queue: a request's rows, the parts of it that go into batches, and the answer they join to."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gaussport.serving.errors import too_late

Rows = NDArray[Any]
"""Pixels in float32, tokens in int64, or records of several inputs: a batch's rows, whatever they are."""


class Room(Protocol):
    """Room in the queue, given back as batches take its images."""

    def take(self, images: int) -> None: ...


@dataclass(frozen=True)
class Answer:
    """The logits [n, K] of a request's rows, in their order, and where its time went."""

    logits: Rows
    queue_s: float
    inference_s: float


@dataclass(eq=False)
class Waiting:
    """One request's rows, of which `taken` are in or through a batch and `done` are answered."""

    rows: Rows
    deadline: float
    arrived: float
    place: Room
    answer: asyncio.Future[Answer]
    taken: int = 0
    done: int = 0
    started: float = 0.0
    inference_s: float = 0.0
    logits: Rows | None = None

    @property
    def left(self) -> int:
        return len(self.rows) - self.taken

    def deliver(self, start: int, logits: Rows, seconds: float) -> None:
        """Store the logits of rows start, start + 1, …; the last ones complete the answer."""
        if self.answer.done():
            return
        if len(logits) == len(self.rows):  # a view of the batch's: that of most requests
            self.logits = logits
        elif self.logits is None:
            self.logits = np.empty((len(self.rows), *logits.shape[1:]), dtype=logits.dtype)
        if self.logits is not logits:
            self.logits[start : start + len(logits)] = logits
        self.done += len(logits)
        self.inference_s += seconds
        if self.done == len(self.rows):
            self.answer.set_result(Answer(self.logits, self.started - self.arrived, self.inference_s))

    def expire(self) -> None:
        """Its deadline has come."""
        self.fail(too_late())

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(frozen=True)
class Part:
    """Rows start … start + count of one request, in one batch."""

    request: Waiting
    start: int
    count: int

    @property
    def rows(self) -> Rows:
        return self.request.rows[self.start : self.start + self.count]


def split(logits: Rows, parts: Iterable[Part]) -> Iterable[Rows]:
    """A batch's logits, cut where its parts meet."""
    offset = 0
    for part in parts:
        yield logits[offset : offset + part.count]
        offset += part.count
