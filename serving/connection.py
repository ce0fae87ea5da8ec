"""What uvicorn's connection lacks: a deadline and a bound for the head of a request, a deadline for what follows an early
answer, patience at the end for a request that has begun to arrive, and our form for requests that are not HTTP."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gaussport.serving.arriving_body import ArrivingBody
from gaussport.serving.exchange import Exchange
from gaussport.serving.refusal import refusal

MOST_BYTES = 1 << 20
"""The largest message of a WebSocket; a connection that sends a larger one is closed with 1009."""
MOST_HEAD_BYTES = 1 << 16
"""The largest head of a request, give or take one read: the parser keeps what it has of a line, and every line."""
_SCRATCH = memoryview(bytearray(262_144))
"""What is read goes here and is parsed before anything else is read, by whichever connection."""
_HEAD_SCRATCH = _SCRATCH[:8192]
"""For a request's head: what is read of the body with it is copied twice, what comes later not at all."""


class Connection(HttpToolsProtocol):
    """One client's connection. uvicorn times idle connections only, and each byte restarts that clock.

    A body whose length is announced is read into its own memory, past the parser, which would copy it twice.
    """

    head_timeout_s = 30.0
    refused: Callable[[str], None] = staticmethod(lambda code: None)
    """Told the code of each request that is refused here and never reaches the application."""
    last_grace_s = 0.5
    """How long a silent connection may still begin a request while the server stops, and a refused one may still send."""
    _head_timer: asyncio.TimerHandle | None = None
    _due = 0
    """Bytes of an announced body that have not arrived."""
    _arriving = False
    """Between the first byte of a request and its last."""
    _in_head = False
    """Between the first byte of a request and the end of its head."""
    _lines = 0
    """Bytes read since a request began or its body went on: of its head, or of lines behind its body."""
    _answering: Exchange | None = None
    _stopping = False
    _deaf = False
    """It was refused: what still comes is dropped, so that its client can read why."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._body = ArrivingBody()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._due and not self.cycle.response_complete:
            return self._body.room(self._due)
        return _SCRATCH if self._arriving else _HEAD_SCRATCH

    def buffer_updated(self, nbytes: int) -> None:
        if self._deaf:
            return
        if not self._due:
            self.data_received(_SCRATCH[:nbytes])  # type: ignore[arg-type]  # the parser takes any buffer
        elif self.cycle.response_complete:
            self._swallow(nbytes)
        else:
            self._unset_keepalive_if_required()
            self._written(nbytes)
            if not self._due:
                self._past_the_body()

    def _swallow(self, size: int) -> None:
        """What comes is the rest of a body that nobody wants any more, and perhaps a request behind it."""
        rest = max(0, size - self._due)
        self._unset_keepalive_if_required()
        self._due -= size - rest
        if not self._due:
            self._past_the_body()
            if rest:
                self.data_received(bytes(_SCRATCH[size - rest : size]))

    def _written(self, size: int) -> None:
        self._due -= size
        if self._body.written(size) and self._due:
            self.flow.pause_reading()
            self._hand_on()

    def _past_the_body(self) -> None:
        self.parser = _parser(self)  # the one before still waits for the body
        self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._lines = 0
        if not self._due:  # chunked: nobody knows how much will come
            super().on_body(body)
        elif self.cycle.response_complete:
            self._due -= len(body)
        else:
            self._store(memoryview(body))

    def _store(self, body: memoryview) -> None:
        """What the parser read of an announced body."""
        while body:
            room = self._body.room(self._due)
            size = min(len(room), len(body))
            room[:size] = body[:size]
            self._written(size)
            body = body[size:]

    def _hand_on(self) -> None:
        piece = self._body.take()
        self.cycle.body = bytearray(self.cycle.body) + piece if self.cycle.body else piece  # type: ignore[assignment]
        self.cycle.message_event.set()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arriving = self._in_head = True
        self._lines = 0

    def data_received(self, data: bytes) -> None:
        self._lines += len(data)
        super().data_received(data)
        if self._lines > MOST_HEAD_BYTES and not self._deaf:
            self._refuse(f"the head of the request is larger than {MOST_HEAD_BYTES:,} bytes: send less", "head_too_large")
        elif self._in_head:
            self._await_head()

    def on_message_complete(self) -> None:
        self._arriving = False
        self._due = 0
        if self._body and not self.cycle.response_complete:
            self._hand_on()
        self._body.drop()
        super().on_message_complete()
        self._forget_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._arriving:
            self._await_head()  # the rest of a body that nobody waits for: it may not come for ever

    def shutdown(self) -> None:
        """The server stops: answer what is here or on its way, then close. A connection that is silent stays open for a
        moment, because its client may have begun to write before it can know."""
        self._stopping = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif not self._arriving:  # else `on_headers_complete` sees to it
            self.loop.call_later(self.last_grace_s, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if not self._arriving and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._forget_head()
        if self._becomes_socket:
            super().on_headers_complete()
            return
        self._complete_scope()
        self._due = _announced(self.headers)
        before, self.cycle = self.cycle, self._exchange()
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _complete_scope(self) -> None:
        scope, url = self.scope, httptools.parse_url(self.url)
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = self.parser.get_http_version()
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"], scope["query_string"] = url.path, url.query or b""

    def _exchange(self) -> Exchange:
        return Exchange(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=not self._stopping and self.scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _becomes_socket(self) -> bool:
        return bool(self.parser.should_upgrade()) and self._should_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        self._body.drop()
        super().connection_lost(exc)
        if self._answering is not None:
            self._answering.hung_up()  # of several requests that came at once the one that is being answered

    def send_400_response(self, msg: str) -> None:
        self._refuse("this is not a request in HTTP/1.1", "malformed_http")

    def _refuse(self, message: str, code: str) -> None:
        self.refused(code)
        self._deaf = True
        self.flow.resume_reading()
        self.pipeline.clear()
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self._answering is not None:
            self._answering.hung_up()  # its answer can no longer be sent
        self.transport.write(refusal(message, code, self.client))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(self.last_grace_s, self.transport.close)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _forget_head(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _announced(headers: list[tuple[bytes, bytes]]) -> int:
    """The length of the body, which the parser has found to be a number; 0 when none is announced."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def _parser(connection: Connection) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(connection)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
    return parser


class _Reader(asyncio.BufferedProtocol):
    """What the event loop sees of a connection: uvicorn's protocol is of the other kind, which is handed copies."""

    def __init__(self, connection: Connection) -> None:
        for name in ("connection_made", "connection_lost", "pause_writing", "resume_writing", "eof_received"):
            setattr(self, name, getattr(connection, name))
        self.get_buffer, self.buffer_updated = connection.get_buffer, connection.buffer_updated  # type: ignore[method-assign]


def _connections(head_timeout_s: float, refused: Callable[[str], None]) -> Callable[..., asyncio.BaseProtocol]:
    """What makes a connection with this deadline, in the place where uvicorn expects a protocol."""
    kind = type("Connection", (Connection,), {"head_timeout_s": head_timeout_s, "refused": staticmethod(refused)})
    return lambda **given: _Reader(kind(**given))


def quiet_config(
    app: Any,
    head_timeout_s: float,
    keep_alive_s: int,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    refused: Callable[[str], None] = lambda code: None,
) -> uvicorn.Config:
    """uvicorn without logs of its own or the name of the server in each answer."""
    return uvicorn.Config(
        app,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        http=_connections(head_timeout_s, refused),  # type: ignore[arg-type]
        ws="websockets-sansio",
        ws_max_size=MOST_BYTES,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=keep_alive_s,
    )
