"""The asynchronous client: tasks in place of threads, the same decisions."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from gaussport.errors import ImageError, ServingError
from gaussport.serving.client import answers, questions, streams
from gaussport.serving.client.answers import Classified
from gaussport.serving.client.exchange import Outcome, Send, Wait, exchange
from gaussport.serving.client.options import Options
from gaussport.serving.client.pictures import read_picture


class AsyncClient:
    """A connection pool to one server, on one event loop. `options` are those of `Options`."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None, **options: Any) -> None:
        self.options = Options(**options)
        self._http = httpx.AsyncClient(**self.options.http(url), transport=transport)
        self.url = str(self._http.base_url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def models(self) -> list[dict[str, Any]]:
        """What the server serves."""
        return answers.models(self.url, await self._ask(questions.MODELS))

    async def classify(
        self,
        pictures: Iterable[Path | bytes | str],
        top_k: int = 5,
        model: str | None = None,
        *,
        version: str | None = None,
        timeout_ms: float | None = None,
        urgent: bool = False,
    ) -> AsyncIterator[Classified]:
        """One answer for each picture or text, in order, over several connections; as of `Client.classify`."""
        given = questions.parameters(top_k, model, version, timeout_ms, urgent)
        source = iter(pictures)
        pending = deque(asyncio.ensure_future(self._one(each, given)) for each in islice(source, self.options.connections))
        try:
            while pending:
                answer = await pending[0]
                pending.popleft()
                pending.extend(asyncio.ensure_future(self._one(each, given)) for each in islice(source, 1))
                yield answer
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    @asynccontextmanager
    async def stream(
        self, model: str | None = None, top_k: int = 5, *, version: str | None = None, ttl_s: float | None = None
    ) -> AsyncIterator["AsyncStream"]:
        """A stream on a causal model of text, closed at the end; errors as of `Client.stream`."""
        path = streams.opened(self.url, await self._ask(streams.opening(model, version, ttl_s)))
        try:
            yield AsyncStream(self, path, top_k)
        finally:
            with suppress(ServingError):
                await self._ask(streams.closing(path))

    async def _one(self, picture: Path | bytes | str, given: dict[str, Any]) -> Classified:
        try:
            data = picture if isinstance(picture, bytes | str) else await asyncio.to_thread(read_picture, picture)
        except ImageError as error:
            return Classified([], [], str(error), error.code)
        return answers.classified(self.url, await self._ask(questions.classify(data, given)))

    async def _ask(self, request: Send) -> httpx.Response:
        steps = exchange(request, self.options, self.url)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                response: httpx.Response = end.value
                return response
            outcome = await self._do(step)

    async def _do(self, step: Send | Wait) -> Outcome:
        if isinstance(step, Wait):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.request(step.method, step.path, **step.arguments)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return error


class AsyncStream:
    """An open stream; `tokens` is what it has had."""

    def __init__(self, client: AsyncClient, path: str, top_k: int) -> None:
        self._client, self.path, self._top_k = client, path, top_k
        self.tokens = 0

    async def send(self, chunk: bytes | str) -> streams.Running:
        """The prediction after this chunk; errors as of `Stream.send`."""
        request = streams.sending(self.path, chunk, self._top_k, self.tokens)
        running = streams.running(self._client.url, await self._client._ask(request))
        self.tokens = running.tokens
        return running
