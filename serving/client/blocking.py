"""The blocking client: threads, because a picture is read from disk while others are on their way."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
from gaussport.serving.report import with_progress

AHEAD = 4
"""Pictures read ahead for each connection."""


class Client:
    """A connection pool to one server. `options` are those of `Options`."""

    def __init__(self, url: str, *, transport: httpx.BaseTransport | None = None, **options: Any) -> None:
        self.options = Options(**options)
        self._http = httpx.Client(**self.options.http(url), transport=transport)
        self.url = str(self._http.base_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def models(self) -> list[dict[str, Any]]:
        """What the server serves."""
        return answers.models(self.url, self._ask(questions.MODELS))

    def classify(
        self,
        pictures: Iterable[Path | bytes | str],
        top_k: int = 5,
        model: str | None = None,
        *,
        version: str | None = None,
        timeout_ms: float | None = None,
        urgent: bool = False,
        progress: bool = False,
    ) -> Iterator[Classified]:
        """One answer for each picture or text, in order, over several connections at once: a path is a file of either, a
        string is a text.

        A picture that cannot be read or is refused is an answer with an error; a server that cannot be reached or refuses
        everything raises ServingError. `progress` shows a bar on standard error where that is a terminal.
        """
        given = questions.parameters(top_k, model, version, timeout_ms, urgent)
        if not progress:
            return self._in_order(pictures, given)
        known = list(pictures)
        return with_progress(self._in_order(known, given), len(known))

    @contextmanager
    def stream(
        self, model: str | None = None, top_k: int = 5, *, version: str | None = None, ttl_s: float | None = None
    ) -> Iterator["Stream"]:
        """A stream on a causal model of text, closed at the end. RefusedError when the server or the model has none."""
        path = streams.opened(self.url, self._ask(streams.opening(model, version, ttl_s)))
        try:
            yield Stream(self, path, top_k)
        finally:
            with suppress(ServingError):
                self._ask(streams.closing(path))

    def _in_order(self, pictures: Iterable[Path | bytes | str], given: dict[str, Any]) -> Iterator[Classified]:
        source = iter(pictures)
        with ThreadPoolExecutor(self.options.connections, "query") as threads:
            first = islice(source, self.options.connections * AHEAD)
            pending = deque(threads.submit(self._one, picture, given) for picture in first)
            try:
                while pending:
                    answer = pending.popleft().result()
                    pending.extend(threads.submit(self._one, picture, given) for picture in islice(source, 1))
                    yield answer
            finally:
                for future in pending:
                    future.cancel()

    def _one(self, picture: Path | bytes | str, given: dict[str, Any]) -> Classified:
        try:
            data = picture if isinstance(picture, bytes | str) else read_picture(picture)
        except ImageError as error:
            return Classified([], [], str(error), error.code)
        return answers.classified(self.url, self._ask(questions.classify(data, given)))

    def _ask(self, request: Send) -> httpx.Response:
        steps = exchange(request, self.options, self.url)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                response: httpx.Response = end.value
                return response
            outcome = self._do(step)

    def _do(self, step: Send | Wait) -> Outcome:
        if isinstance(step, Wait):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.request(step.method, step.path, **step.arguments)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return error


class Stream:
    """An open stream; `tokens` is what it has had."""

    def __init__(self, client: Client, path: str, top_k: int) -> None:
        self._client, self.path, self._top_k = client, path, top_k
        self.tokens = 0

    def send(self, chunk: bytes | str) -> streams.Running:
        """The prediction after this chunk, which may end in the middle of a character. RefusedError, and the stream is as it
        was, unless `code` is `stream_unknown`: then it is gone."""
        request = streams.sending(self.path, chunk, self._top_k, self.tokens)
        running = streams.running(self._client.url, self._client._ask(request))
        self.tokens = running.tokens
        return running
