"""One request and its repetitions, told as steps, so that a blocking and an asynchronous client share every decision.

    Send(request) ──▶ the caller sends it and gives back the response, or what httpx raised
    Wait(seconds) ──▶ the caller waits

Only what the server has certainly not begun is sent again: 429, 503, and connections that were refused. With
`Options.resend`, that many times, also what a server had when it was lost: the connection broke, or a proxy said 5xx.
"""

import math
import random
import socket
import ssl
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import httpx

from gaussport.errors import ServingError
from gaussport.serving.client.options import Options

_TRY_AGAIN = {429, 503}
_OF_PROXIES = {500, 502, 504}
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.05, 60.0
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.1, 2.0


@dataclass(frozen=True)
class Send:
    """Send this and give back the response."""

    method: str
    path: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """Let this time pass."""

    seconds: float


Outcome = httpx.Response | Exception | None
Steps = Generator[Send | Wait, Outcome, httpx.Response]


def exchange(request: Send, options: Options, url: str, clock: Callable[[], float] = time.monotonic) -> Steps:
    """The steps of one request; their result is the last response, be it a refusal.

    ServingError, in a sentence, when the server cannot be reached or does not answer in time.
    """
    began = clock()
    backoff_s = _FIRST_BACKOFF_S
    resends = options.resend
    while True:
        outcome = yield request
        if resends and _was_lost(outcome):
            resends -= 1
            wait_s = _jittered(backoff_s)
            backoff_s = min(_LAST_BACKOFF_S, 2 * backoff_s)
        elif isinstance(outcome, httpx.Response):
            if outcome.status_code not in _TRY_AGAIN:
                return outcome
            wait_s = retry_after_s(outcome)
            if clock() - began + wait_s > options.patience_s:
                return outcome
        else:
            wait_s = _jittered(backoff_s)
            backoff_s = min(_LAST_BACKOFF_S, 2 * backoff_s)
            if not _nobody_listens(outcome) or clock() - began + wait_s > options.unreachable_s:
                raise _unreachable(url, outcome)
        yield Wait(wait_s)


def _was_lost(outcome: Outcome) -> bool:
    """Whether a server had the request and is no more: an answer of a gaussport server is its own, whatever its status."""
    if isinstance(outcome, httpx.Response):
        return outcome.status_code in _OF_PROXIES and not _is_ours(outcome)
    return isinstance(outcome, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError)


def _is_ours(response: httpx.Response) -> bool:
    try:
        content = response.json()
    except ValueError:
        return False
    return isinstance(content, dict) and "code" in content


def _nobody_listens(error: BaseException | None) -> bool:
    """A connection that was not made, for a reason that may pass: neither an unknown name nor a certificate."""
    if not isinstance(error, httpx.ConnectError):
        return False
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError | socket.gaierror):
            return False
        cause = cause.__cause__ or cause.__context__
    return True


def _unreachable(url: str, error: Exception | None) -> ServingError:
    if isinstance(error, httpx.TimeoutException):
        message = f"{url} did not answer in time: is it overloaded?"
    else:
        message = f"{url} cannot be reached ({error}): is the server running there?"
    fault = ServingError(message)
    fault.__cause__ = error
    return fault


def retry_after_s(response: httpx.Response) -> float:
    """What the server asks for, within bounds; 1 s when it says nothing that can be read."""
    try:
        asked = float(response.headers.get("Retry-After", "1"))
    except ValueError:
        asked = 1.0
    return 1.0 if math.isnan(asked) else min(_LONGEST_WAIT_S, max(_SHORTEST_WAIT_S, asked))


def _jittered(seconds: float) -> float:
    """Up to a half more, so that many clients of one server do not come back at one moment."""
    return seconds * (1 + random.random() / 2)
