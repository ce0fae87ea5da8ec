"""A client for `/v1/classify`: several connections, patient with a full queue, the server's own words when it refuses."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from gaussport.errors import ImageError, ServingError

_LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1", "[::1]"}
_TRY_AGAIN = {429, 503}
_PICTURES_FAULT = {400, 413, 415, 422}
_AHEAD = 4  # pictures read ahead for each connection


@dataclass(frozen=True)
class Classified:
    """What the server said of one picture: predictions, or the error that it answered with."""

    predictions: list[dict[str, Any]]
    warnings: list[str]
    error: str | None = None
    code: str | None = None
    timing_ms: dict[str, float] | None = None


class Client:
    """A connection pool to one server. `patience_s` is how long a picture is offered again while the queue is full."""

    def __init__(
        self,
        url: str,
        connections: int = 4,
        timeout_s: float = 60.0,
        patience_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        try:
            base = httpx.URL(url if "://" in url else f"http://{url}")
        except httpx.InvalidURL as error:
            raise ServingError(f"{url} is not an address: give one like http://127.0.0.1:8000") from error
        self.url = str(base)
        self._connections = connections
        self._patience_s = patience_s
        # A proxy from the environment must not stand between a client and its own machine.
        self._http = httpx.Client(
            base_url=base,
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=base.host not in _LOCAL_HOSTS,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def models(self) -> list[dict[str, Any]]:
        """What the server serves."""
        models: list[dict[str, Any]] = self._checked(self._send("GET", "/v1/models")).json()["models"]
        return models

    def classify(self, pictures: Iterable[Path | bytes], top_k: int = 5, model: str | None = None) -> Iterator[Classified]:
        """One answer for each picture, in order, over several connections at once.

        A picture that cannot be read or is refused is an answer with an error; a server that cannot be reached raises.
        """
        parameters = {"top_k": top_k} | ({} if model is None else {"model": model})
        source = iter(pictures)
        with ThreadPoolExecutor(self._connections, "query") as threads:
            first = islice(source, self._connections * _AHEAD)
            pending = deque(threads.submit(self._one, picture, parameters) for picture in first)
            try:
                while pending:
                    answer = pending.popleft().result()
                    pending.extend(threads.submit(self._one, picture, parameters) for picture in islice(source, 1))
                    yield answer
            finally:
                for future in pending:
                    future.cancel()

    def _one(self, picture: Path | bytes, parameters: dict[str, Any]) -> Classified:
        try:
            data = picture if isinstance(picture, bytes) else read_picture(picture)
        except ImageError as error:
            return Classified([], [], str(error), error.code)
        response = self._send(
            "POST", "/v1/classify", params=parameters, content=data, headers={"Content-Type": "application/octet-stream"}
        )
        if response.status_code not in (200, *_PICTURES_FAULT):
            self._checked(response)
        try:
            content = response.json()
            if response.status_code == 200:
                result = content["results"][0]
                return Classified(result["predictions"], result["warnings"], timing_ms=content["timing_ms"])
            if content["code"] != "bad_parameter":
                return Classified([], [], content["error"], content["code"])
        except (ValueError, LookupError, TypeError) as error:
            raise ServingError(f"{self.url} does not answer like a gaussport server: check the address") from error
        self._checked(response)
        raise ServingError(f"{self.url} answered {response.status_code}, which was not expected")

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One request, offered again while the server says that it has no room."""
        give_up = time.monotonic() + self._patience_s
        while True:
            try:
                response = self._http.request(method, path, **request)
            except httpx.TimeoutException as error:
                raise ServingError(f"{self.url} did not answer in time: is it overloaded?") from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise ServingError(f"{self.url} cannot be reached ({error}): is the server running there?") from error
            if response.status_code not in _TRY_AGAIN:
                return response
            wait_s = _retry_after_s(response)
            if time.monotonic() + wait_s > give_up:
                return response
            time.sleep(wait_s)

    def _checked(self, response: httpx.Response) -> httpx.Response:
        if response.is_success:
            return response
        try:
            reason = str(response.json()["error"])
        except (ValueError, LookupError, TypeError):
            reason = "and does not answer like a gaussport server"
        raise ServingError(f"{self.url} answered {response.status_code}: {reason}")


def read_picture(path: Path) -> bytes:
    """The bytes of a file; ImageError `unreadable_file` in one sentence when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}", "unreadable_file") from error


def _retry_after_s(response: httpx.Response) -> float:
    try:
        return min(60.0, max(0.05, float(response.headers.get("Retry-After", "1"))))
    except ValueError:
        return 1.0
