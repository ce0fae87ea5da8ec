"""What a server's answers mean to the caller: a classified picture, a refused one, or an error that is not about it."""

from dataclasses import dataclass
from typing import Any

import httpx

from gaussport.errors import ServingError

_PICTURES_FAULT = {400, 413, 415, 422}
_REQUESTS_FAULT = {"bad_parameter"}
"""400s that every picture would meet: not about this one."""


@dataclass(frozen=True)
class Classified:
    """What the server said of one picture or text: predictions, or the error that it answered with."""

    predictions: list[dict[str, Any]]
    warnings: list[str]
    error: str | None = None
    code: str | None = None
    timing_ms: dict[str, float] | None = None
    tokens: int | None = None
    """Of a text, and in how many windows it was read."""
    windows: int | None = None


class RefusedError(ServingError):
    """The server answered, and not with what was asked. `status` is HTTP's, `code` and `request_id` the server's own."""

    def __init__(self, message: str, status: int, code: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.request_id = status, code, request_id


def classified(url: str, response: httpx.Response) -> Classified:
    """The answer to one picture. RefusedError when it is not about the picture; ServingError when it is none of ours."""
    if response.status_code == 200:
        content = _content(url, response)
        try:
            result = content["results"][0]
            of_text = {name: result[name] for name in ("tokens", "windows") if name in result}
            return Classified(result["predictions"], result["warnings"], timing_ms=content["timing_ms"], **of_text)
        except (LookupError, TypeError) as error:
            raise _stranger(url) from error
    refused = refusal(url, response)
    if response.status_code not in _PICTURES_FAULT or refused.code in _REQUESTS_FAULT or not refused.code:
        raise refused
    return Classified([], [], _content(url, response)["error"], refused.code)


def models(url: str, response: httpx.Response) -> list[dict[str, Any]]:
    if response.status_code != 200:
        raise refusal(url, response)
    try:
        found: list[dict[str, Any]] = _content(url, response)["models"]
    except (LookupError, TypeError) as error:
        raise _stranger(url) from error
    return found


def refusal(url: str, response: httpx.Response) -> RefusedError:
    """An error in the server's words, or in ours when it has none."""
    try:
        content = response.json()
        reason, code, request_id = str(content["error"]), str(content["code"]), str(content.get("request_id", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        reason, code, request_id = "and does not answer like a gaussport server", "", ""
    return RefusedError(f"{url} answered {response.status_code}: {reason}", response.status_code, code, request_id)


def _content(url: str, response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise _stranger(url) from error


def _stranger(url: str) -> ServingError:
    return ServingError(f"{url} does not answer like a gaussport server: check the address")
