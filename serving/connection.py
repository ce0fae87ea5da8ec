"""What uvicorn's connection lacks: a deadline for the head of a request and for what follows an early answer, patience at
the end for a request that has begun to arrive, and our form for requests that are not HTTP."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gaussport.serving.errors import error_content


class Connection(HttpToolsProtocol):
    """One client's connection. uvicorn times idle connections only, and each byte restarts that clock."""

    head_timeout_s = 30.0
    last_grace_s = 0.5
    """How long a silent connection may still begin a request while the server stops."""
    _head_timer: asyncio.TimerHandle | None = None
    _arriving = False
    """Between the first byte of a request and its last."""
    _stopping = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arriving = True
        self._await_head()

    def on_message_complete(self) -> None:
        self._arriving = False
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
        super().on_headers_complete()
        if self._stopping and self.cycle is not None:
            self.cycle.keep_alive = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        content = orjson.dumps(error_content("this is not a request in HTTP/1.1", "malformed_http", uuid.uuid4().hex))
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        self.transport.write(head.encode() + b"Connection: close\r\n\r\n" + content)
        self.transport.close()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def connection_class(head_timeout_s: float) -> Any:
    """A connection with this deadline, in the place where uvicorn expects a protocol."""
    return type("Connection", (Connection,), {"head_timeout_s": head_timeout_s})


def quiet_config(
    app: Any, head_timeout_s: float, keep_alive_s: int, tls_cert: Path | None = None, tls_key: Path | None = None
) -> uvicorn.Config:
    """uvicorn without logs of its own, websockets or the name of the server in each answer."""
    return uvicorn.Config(
        app,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        http=connection_class(head_timeout_s),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=keep_alive_s,
    )
