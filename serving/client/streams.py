"""A stream as its client sees it: chunks in, the running prediction out. Both clients send the same requests."""

from dataclasses import dataclass
from typing import Any

import httpx

from gaussport.serving.client import answers
from gaussport.serving.client.exchange import Send


@dataclass(frozen=True)
class Running:
    """The prediction for all that a stream has had so far, which is `tokens`."""

    predictions: list[dict[str, Any]]
    tokens: int
    timing_ms: dict[str, float]


def opening(model: str | None, version: str | None, ttl_s: float | None) -> Send:
    given = {"model": model, "version": version, "ttl_s": ttl_s}
    return Send("POST", "/v1/streams", {"params": {name: value for name, value in given.items() if value is not None}})


def closing(path: str) -> Send:
    return Send("DELETE", path)


def sending(path: str, chunk: bytes | str, top_k: int, offset: int) -> Send:
    """The chunk for the place that it belongs to: one that arrives twice is refused, not read twice."""
    content = chunk if isinstance(chunk, bytes) else chunk.encode("utf-8")
    headers = {"Content-Type": "application/octet-stream"}
    return Send("POST", path, {"params": {"top_k": top_k, "offset": offset}, "content": content, "headers": headers})


def opened(url: str, response: httpx.Response) -> str:
    """The path of a stream. RefusedError in the server's words."""
    if response.status_code != 201:
        raise answers.refusal(url, response)
    return response.headers["location"]


def running(url: str, response: httpx.Response) -> Running:
    """RefusedError in the server's words."""
    if response.status_code != 200:
        raise answers.refusal(url, response)
    content = response.json()
    return Running(content["predictions"], content["tokens"], content["timing_ms"])
