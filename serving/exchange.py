"""One request and its answer on a connection: uvicorn's, without the copies, and with a word when the client has gone."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

EXCHANGE = "gaussport.exchange"
"""Where a scope has its exchange."""


class Exchange(RequestResponseCycle):
    """A body is handed on as it lies in memory: `bytearray` or `memoryview` where uvicorn makes bytes. An answer whose
    length is known is written whole, in one call of the system."""

    _leave: Callable[[], None] | None = None
    _head: bytes | None = None
    """Of the answer; it waits for the first of its body."""

    def watch(self, leave: Callable[[], None]) -> None:
        """Call `leave` once, when the client hangs up; soon, if it has."""
        self._leave = leave
        if self.disconnected:
            asyncio.get_running_loop().call_soon(self.hung_up)

    def unwatch(self) -> None:
        self._leave = None

    def hung_up(self) -> None:
        """The connection is gone."""
        leave, self._leave = self._leave, None
        if not self.response_complete:
            self.disconnected = True
            self.message_event.set()
            if leave is not None:
                leave()

    async def run_asgi(self, app: Any) -> None:
        self.scope[EXCHANGE] = self  # type: ignore[literal-required]
        try:
            await super().run_asgi(app)
        finally:  # else each holds the other until rubbish is collected
            del self.scope[EXCHANGE]  # type: ignore[misc]

    async def receive(self) -> Any:
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Any) -> None:
        kind = message["type"]
        if kind == "http.response.start" and not self.response_started:
            headers = [*self.default_headers, *message["headers"]]
            length = next((value for name, value in headers if name == b"content-length"), None)
            if length is not None:
                self.expected_content_length, self.chunked_encoding = int(length), False
                self._head = self._head_of(message["status"], headers)
                self.response_started = True
                return
        elif self._head is not None and kind == "http.response.body":
            if self.flow.write_paused and not self.disconnected:
                await self.flow.drain()
            if not self.disconnected:
                self._write(message.get("body", b""), message.get("more_body", False))
            return
        await super().send(message)

    def _head_of(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        said = next((value for name, value in headers if name == b"connection"), b"")
        if b"close" in said:
            self.keep_alive = False
        elif not self.keep_alive:
            headers = [*headers, (b"connection", b"close")]
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        if not lines.count(b"\n") == lines.count(b"\r") == len(headers) or b"\0" in lines:
            raise RuntimeError("a header of the answer has a line break or a zero in it")
        return STATUS_LINE[status] + lines + b"\r\n"

    def _write(self, body: bytes, more: bool) -> None:
        """The head and the first of the body, which mostly is all of it."""
        if self.scope["method"] == "HEAD":
            self.expected_content_length, body = 0, b""
        self.expected_content_length -= len(body)
        if self.expected_content_length < 0 or (self.expected_content_length and not more):
            raise RuntimeError("the answer's body is not as long as its Content-Length")
        assert self._head is not None
        self.transport.write(b"".join((self._head, body)))
        self._head = None
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()
