"""What surrounds every request: its id, its span, its count in the metrics, its line in the log, the headers that every
answer has, and the net under it that makes a 500 of a bug.

A WebSocket's handshake is such a request, a GET that is answered once it is accepted or refused; its messages are counted
where they are read."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gaussport.serving.errors import answer_of_error, internal_error, stopping
from gaussport.serving.metrics import Metrics
from gaussport.serving.tracing import Tracing

log = logging.getLogger("gaussport.access")

_ID_HEADER = b"x-request-id"
_PROCESS = secrets.token_hex(8)
_NUMBERS = count()
"""Ids of requests whose clients gave none: this process's, then a number. A random one each would be a system call each."""
_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
SAFE_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Headers of every answer that does not set them itself: pages allow themselves what they need."""
_SAFE_NAMES = frozenset(name for name, _ in SAFE_HEADERS)
_SWITCHING = 101
_HANDSHAKES = {"websocket.accept": _SWITCHING, "websocket.close": 403, "websocket.http.response.start": 0}
"""What answers a handshake, and the status that it does so with; the last one has its own."""


@dataclass(frozen=True)
class RequestScope:
    """The outermost middleware. A client's own request id is kept if it is harmless, else one is made."""

    app: ASGIApp
    metrics: Metrics
    tracing: Tracing
    closing: Callable[[], bool] = lambda: False
    """Whether the server is stopping: then each answer tells its client to connect anew next time."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _ID_HEADER), b"")
        request_id = given.decode() if _ID.fullmatch(given) else _PROCESS + next(_NUMBERS).to_bytes(8).hex()
        scope["gaussport.request_id"] = request_id
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send, request_id)
            return
        began = time.monotonic()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = _add_headers(message, request_id)
                if b"connection" not in present and self.closing():
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        self.metrics.in_flight.inc()
        try:
            with self.tracing.request(scope, request_id):
                await self.app(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            if status:
                raise
            # Nobody cancels a request but the server that ends, when its patience is over: whoever still waits is told.
            await answer_of_error(scope, stopping())(scope, receive, send_with_headers)
        except Exception as error:
            if status:
                raise  # half an answer is out: only the connection can be closed
            scope["gaussport.code"] = "internal"
            await internal_error(request_id, error)(scope, receive, send_with_headers)
        finally:
            self.metrics.in_flight.dec()
            self._count(scope, request_id, scope["method"], status, began)

    async def _socket(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        began = time.monotonic()
        status = 0

        async def send_counted(message: Message) -> None:
            nonlocal status
            if not status and message["type"] in _HANDSHAKES:
                status = message.get("status") or _HANDSHAKES[message["type"]]
                if status == _SWITCHING:
                    message["headers"] = [*message.get("headers", ()), (_ID_HEADER, request_id.encode())]
                    self.metrics.sockets.inc()
                elif message["type"] == "websocket.http.response.start":
                    _add_headers(message, request_id)
                self._count(scope, request_id, "GET", status, began)
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        except Exception as error:
            if status:
                raise  # the server closes the connection
            scope["gaussport.code"] = "internal"
            await internal_error(request_id, error)(scope, receive, send_counted)
        finally:
            if status == _SWITCHING:
                self.metrics.sockets.dec()

    def _count(self, scope: Scope, request_id: str, method: str, status: int, began: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        seconds = time.monotonic() - began
        self.metrics.request(route, method, status, seconds, scope.get("gaussport.code", ""))
        if log.isEnabledFor(logging.INFO):
            _log(scope, request_id, route, method, status, seconds)


def _add_headers(message: Message, request_id: str) -> set[bytes]:
    """Add what every answer has to its head, and return the names that it had."""
    own = message.get("headers", ())
    present = {name for name, _ in own}
    safe = SAFE_HEADERS
    if not present.isdisjoint(_SAFE_NAMES):
        safe = tuple(each for each in SAFE_HEADERS if each[0] not in present)
    message["headers"] = [*own, (_ID_HEADER, request_id.encode()), *safe]
    return present


def _log(scope: Scope, request_id: str, route: str, method: str, status: int, seconds: float) -> None:
    """One line for an answered request. The route, never the path: what a client writes stays out of the log."""
    _log_facts(
        {
            "request_id": request_id,
            "client": (scope.get("client") or ("",))[0],
            "method": method if method.isalpha() else "?",
            "route": route,
            "status": status,
            "code": scope.get("gaussport.code", ""),
            "milliseconds": round(seconds * 1000, 3),
        }
    )


def log_refused(request_id: str, client: tuple[str, int] | None, status: int, code: str) -> None:
    """One line for what was refused before it was a request."""
    if log.isEnabledFor(logging.INFO):
        _log_facts({"request_id": request_id, "client": (client or ("",))[0], "status": int(status), "code": code})


def _log_facts(facts: dict[str, object]) -> None:
    log.info("%s", " ".join(f"{name}={value}" for name, value in facts.items() if value != ""), extra={"facts": facts})
