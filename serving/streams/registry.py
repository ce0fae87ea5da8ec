"""Every open stream of this process: opened within a bound, advanced in order, ended when idle, closed, or without a model.

A stream belongs to the version of the model it was opened on. It holds that version while it lives, so that a reload lets it
end there, for as long as a retiring model waits; then the stream ends. Nothing is kept beyond the process: after a restart
every stream is unknown, and its client begins again.
"""

import asyncio
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gaussport.serving.errors import RequestError, stopping
from gaussport.serving.metrics import Metrics
from gaussport.serving.served_model import ServedModel
from gaussport.serving.settings import Settings
from gaussport.serving.streams.steps import LONGEST_CHUNK, State, Step, Tokens
from gaussport.serving.waiting import Answer

_REMEMBERED = 1024
"""Ended streams of which it is known why they ended."""


@dataclass(eq=False)
class Stream:
    """One client's text so far, as the model keeps it."""

    id: str
    served: ServedModel
    ttl_s: float
    state: State
    used: float
    tokens: int = 0
    logits: NDArray[np.float32] | None = None
    """[K] after the last chunk; None before the first."""
    busy: bool = False
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Advanced:
    """A stream after a chunk: all its tokens, the logits [K] for all of them, and where the chunk's time went."""

    tokens: int
    logits: NDArray[np.float32]
    queue_s: float
    inference_s: float


class Streams:
    """All methods belong to the event loop."""

    def __init__(self, settings: Settings, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._metrics, self._clock = settings, metrics, clock
        self._open: dict[str, Stream] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._bytes = 0

    def open(self, served: ServedModel, ttl_s: float | None = None) -> Stream:
        """A stream that has had nothing yet. RequestError when the server or the model has none, or there is no room."""
        if self._settings.workers > 1 or self._settings.engine != "plain":
            raise RequestError(
                "streams live in one process and this server has several: serve with --workers 1 and --engine plain",
                "streams_off",
            )
        steps = served.steps
        if steps is None:
            raise RequestError(
                f"{served.name} cannot stream: only a causal GMA model of text has a state; send all of it to /v1/classify",
                "cannot_stream",
            )
        size = steps.state.itemsize
        if len(self._open) >= self._settings.max_streams or self._bytes + size > self._settings.stream_bytes:
            raise self._no_room()
        now = self._clock()
        ttl_s = min(ttl_s or self._settings.stream_ttl_s, self._settings.stream_ttl_s)
        stream = Stream(secrets.token_urlsafe(18), served, ttl_s, steps.fresh(), now)
        served.__enter__()  # until the stream ends
        if self._end_all_of not in served.at_end:
            served.at_end.append(self._end_all_of)
        self._open[stream.id] = stream
        self._bytes += size
        self._metrics.streams.inc()
        self._watch(stream)
        return stream

    def find(self, id: str) -> Stream:
        """RequestError `stream_unknown`, which says why it ended if that is known."""
        stream = self._open.get(id)
        if stream is None:
            why = self._ended.get(id, "it was never opened here, or the server was restarted")
            raise RequestError(
                f"there is no such stream: {why}; open one and send the text from its beginning", "stream_unknown"
            )
        return stream

    async def advance(
        self, stream: Stream, tokens: Tokens, deadline: float, urgent: bool = False, offset: int | None = None
    ) -> Advanced:
        """Read the next tokens. A stream takes one chunk at a time, wholly or not at all: after an error it is as it was."""
        if stream.busy:
            raise RequestError(
                "the stream still reads the chunk before this one: wait for its answer, then send the next",
                "stream_busy",
            )
        if offset is not None and offset != stream.tokens:
            raise RequestError(
                f"the stream has had {stream.tokens} tokens and the chunk does not begin there: send what follows",
                "stream_offset",
            )
        stream.busy = True
        try:
            state, answers = stream.state, list[Answer]()
            for start in range(0, len(tokens), LONGEST_CHUNK):
                piece = tokens[start : start + LONGEST_CHUNK]
                answers.append(await stream.served.advance([Step(piece, state)], deadline, urgent))
                state = answers[-1].logits["state"][0]
            self.find(stream.id)  # it may have ended meanwhile
            logits = np.array(answers[-1].logits["logits"][0])
            stream.state, stream.logits, stream.tokens = state.copy(), logits, stream.tokens + len(tokens)
        finally:
            stream.busy, stream.used = False, self._clock()
        self._metrics.stream_tokens.labels(stream.served.name).inc(len(tokens))
        return Advanced(
            stream.tokens,
            logits,
            sum(answer.queue_s for answer in answers),
            sum(answer.inference_s for answer in answers),
        )

    def close(self, stream: Stream, why: str = "it was closed") -> None:
        if self._open.pop(stream.id, None) is None:
            return
        if stream.timer is not None:
            stream.timer.cancel()
        self._bytes -= stream.state.nbytes
        self._metrics.streams.dec()
        self._ended[stream.id] = why
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        stream.served.__exit__(None, None, None)

    def close_all(self) -> None:
        for stream in list(self._open.values()):
            self.close(stream, str(stopping()))

    def ended(self, stream: Stream) -> bool:
        return self._open.get(stream.id) is not stream

    def idle_s(self, stream: Stream) -> float:
        return 0.0 if stream.busy else self._clock() - stream.used

    def _end_all_of(self, served: ServedModel) -> None:
        for stream in [stream for stream in self._open.values() if stream.served is served]:
            self.close(stream, "its model was replaced or unloaded")

    def _watch(self, stream: Stream) -> None:
        """Let the stream end once it has been idle for its time."""
        left_s = stream.ttl_s - self.idle_s(stream)
        if left_s <= 0:
            self.close(stream, f"it had nothing for {stream.ttl_s:g} s")
            return
        stream.timer = asyncio.get_running_loop().call_later(left_s, self._watch, stream)

    def _no_room(self) -> RequestError:
        idle = [stream.ttl_s - self.idle_s(stream) for stream in self._open.values()]
        wait_s = max(1, math.ceil(min(idle, default=1.0)))
        return RequestError(
            f"{len(self._open)} streams are open and there is room for no more: close some, or retry after {wait_s} s",
            "too_many_streams",
            wait_s,
        )
