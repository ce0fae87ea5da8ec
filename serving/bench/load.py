"""Load on a server: closed (so many connections, each asks again when it is answered) or open (requests come at a rate,
whether or not the earlier ones were answered, so that a slow server cannot slow its own load)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from gaussport.errors import GaussportError, ServingError
from gaussport.serving.bench.document import LoadFigures

_REFUSALS = (429, 503)
_CPU = "process_cpu_seconds_total"
_WARM_UP = 8
_PATIENCE_S = 60.0
_MOST_OPEN = 2048
"""Requests of an open load on their way at once; a server that far behind is not measured but drowned."""

Ask = Callable[[float], Coroutine[Any, Any, None]]
"""Sends the next picture, timed from the moment that it was due."""


@dataclass
class _Seen:
    """What one load saw: seconds to each answer, by the clock in all, and of the processors on both ends."""

    model: str = ""
    latencies: list[float] = field(default_factory=list)
    refused: int = 0
    seconds: float = 0.0
    own_cpu_s: float = 0.0
    server_cpu_s: float | None = None


class Load:
    """Pictures to one model behind one URL."""

    def __init__(self, url: str, pictures: Sequence[bytes], model: str | None = None, api_key: str | None = None) -> None:
        self._url, self._pictures, self._model = url.rstrip("/"), pictures, model
        self._headers = {"X-API-Key": api_key} if api_key else {}

    def closed(self, connections: int, seconds: float) -> LoadFigures:
        """So many connections for so many seconds. ServingError when the server cannot be asked."""

        async def send(ask: Ask) -> None:
            stop = time.perf_counter() + seconds

            async def one() -> None:
                while (now := time.perf_counter()) < stop:
                    await ask(now)

            async with asyncio.TaskGroup() as group:
                for _ in range(connections):
                    group.create_task(one())

        return self._figures(self._run(send, connections), connections=connections)

    def open(self, per_s: float, seconds: float) -> LoadFigures:
        """Requests at random moments (a Poisson process, the same each time), each timed from when it was due.

        Raises:
            ServingError: the server cannot be asked, or falls behind for good.
        """
        gaps = np.random.default_rng(0).exponential(1 / per_s, max(1, round(per_s * seconds)))

        async def send(ask: Ask) -> None:
            began, waiting = time.perf_counter(), set[asyncio.Task[None]]()
            async with asyncio.TaskGroup() as group:
                for due in began + np.cumsum(gaps):
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    if len(waiting) >= _MOST_OPEN:
                        raise ServingError(f"{self._url} falls behind {per_s:g} requests a second: offer less with --rate")
                    task = group.create_task(ask(float(due)))
                    waiting.add(task)
                    task.add_done_callback(waiting.discard)

        return self._figures(self._run(send, _MOST_OPEN), offered_per_s=per_s)

    def _run(self, send: Callable[[Ask], Awaitable[None]], most: int) -> _Seen:
        try:
            return asyncio.run(self._measured(send, most))
        except (httpx.HTTPError, httpx.InvalidURL, GaussportError, BaseExceptionGroup) as error:
            fault = _innermost(error)
        if isinstance(fault, httpx.HTTPError | httpx.InvalidURL):
            raise ServingError(f"{self._url} cannot be asked: {str(fault) or type(fault).__name__}") from fault
        raise fault

    async def _measured(self, send: Callable[[Ask], Awaitable[None]], most: int) -> _Seen:
        seen, bodies = _Seen(), cycle(self._pictures)
        limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
        async with httpx.AsyncClient(
            base_url=self._url, headers=self._headers, limits=limits, timeout=_PATIENCE_S, trust_env=False
        ) as client:

            async def ask(due: float) -> None:
                answer = await self._post(client, next(bodies))
                if answer.status_code in _REFUSALS:
                    seen.refused += 1
                else:
                    seen.latencies.append(time.perf_counter() - due)

            for _ in range(_WARM_UP):
                seen.model = (await self._post(client, next(bodies))).json().get("model", seen.model)
            before, own, clock = await self._server_cpu_s(client), time.process_time(), time.perf_counter()
            await send(ask)
            seen.seconds, seen.own_cpu_s = time.perf_counter() - clock, time.process_time() - own
            after = await self._server_cpu_s(client)
            seen.server_cpu_s = None if before is None or after is None else after - before
        return seen

    async def _post(self, client: httpx.AsyncClient, picture: bytes) -> httpx.Response:
        query = {"model": self._model} if self._model else None
        answer = await client.post("/v1/classify", content=picture, params=query)
        if answer.status_code != 200 and answer.status_code not in _REFUSALS:
            raise ServingError(f"{self._url} answered {answer.status_code} to a picture: {answer.text[:200]}")
        return answer

    async def _server_cpu_s(self, client: httpx.AsyncClient) -> float | None:
        """Processor seconds of the server so far; None where /metrics does not tell (several workers, another server)."""
        answer = await client.get("/metrics")
        if answer.status_code != 200:
            return None
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                if sample.name == _CPU:
                    return float(sample.value)
        return None

    def _figures(self, seen: _Seen, connections: int | None = None, offered_per_s: float | None = None) -> LoadFigures:
        count = len(seen.latencies)
        if not count:
            raise ServingError(f"{self._url} refused all {seen.refused} requests: offer less, or give it a longer queue")
        half, nine, most = (float(ms) for ms in np.percentile(seen.latencies, [50, 90, 99]) * 1e3)
        return LoadFigures(
            url=self._url,
            model=seen.model,
            kind="closed" if offered_per_s is None else "open",
            connections=connections,
            offered_per_s=offered_per_s,
            seconds=seen.seconds,
            answered=count,
            refused=seen.refused,
            per_s=count / seen.seconds,
            p50_ms=half,
            p90_ms=nine,
            p99_ms=most,
            server_cpu_ms=None if seen.server_cpu_s is None else 1e3 * seen.server_cpu_s / count,
            client_cpu_ms=1e3 * seen.own_cpu_s / count,
        )


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
