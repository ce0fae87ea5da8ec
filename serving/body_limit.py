"""The limits that hold while a body streams in, before any parser: bytes sent, bytes after decompression, time taken, and
the bytes of all requests together from their first byte until they are answered.

Pure ASGI, because a check of Content-Length alone lets a chunked upload through. `Content-Encoding: gzip` and `deflate`
are undone here, so that everybody behind sees plain bytes, counted.
"""

import asyncio
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gaussport.serving.errors import RequestError
from gaussport.serving.patience import Patience, TimeIsOverError

_LINGER_S = 2.0
"""How long an oversized body is read and dropped before the answer, so that a client still sending can hear it."""
_ENCODINGS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}

Body = bytes | bytearray | memoryview


async def whole_body(request: Request) -> bytes:
    """The body of a request. ClientDisconnect if the client leaves before its end."""
    return bytes(await body_as_it_lies(request))


async def body_as_it_lies(request: Request) -> Body:
    """The body of a request where the network wrote it, copied only if it came in pieces. ClientDisconnect as above."""
    pieces: list[Body] = []
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if piece := message.get("body", b""):
            pieces.append(piece)
        more = message.get("more_body", False)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass
class BodyLimit:
    """Middleware that gives the application a `receive` with limits. RequestError: 408, 413, 429, or 400 for broken gzip."""

    app: ASGIApp
    limit_bytes: int
    timeout_s: float
    all_bytes: int
    """How many bytes the bodies of all requests in flight may have together."""
    observe_held: Callable[[int], None] = lambda change: None
    held: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _LimitedBody(receive, dict(scope["headers"]), self)
        try:
            await self.app(scope, body.receive, send)
        finally:
            if body.held:
                self.hold(-body.held)

    def hold(self, change: int) -> None:
        self.held += change
        self.observe_held(change)


class _LimitedBody:
    def __init__(self, receive: Receive, headers: dict[bytes, bytes], limits: BodyLimit) -> None:
        self._receive = receive
        self._limits = limits
        self._deadline = time.monotonic() + limits.timeout_s
        self._announced = headers.get(b"content-length", b"")
        self._waits_for_leave = b"expect" in headers
        self._encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        self._inflate: _Inflate | None = None
        self._size = 0
        self.held = 0
        """Plain bytes handed on so far, which the application keeps."""
        self._complete = False
        self._begun = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()  # from here on only http.disconnect can come
        if not self._begun:
            await self._begin()
        message = await self._next()
        if message["type"] != "http.request":
            return message
        self._complete = not message.get("more_body", False)
        body = message.get("body", b"")
        self._size += len(body)
        if self._size > self._limits.limit_bytes:
            await self._refuse()
        if self._inflate is not None:
            body = await asyncio.to_thread(self._inflate.feed, body, self._limits.limit_bytes, self._complete)
            if body is None:
                await self._refuse()
        if body:
            await self._hold(len(body))
        message["body"] = body
        return message

    async def _hold(self, size: int) -> None:
        if self._limits.held + size > self._limits.all_bytes:
            if not self._waits_for_leave:
                await self._drop_rest()
            raise RequestError(
                f"the requests in flight hold all of {self._limits.all_bytes:,} bytes: retry after 1 s", "overloaded", 1
            )
        self.held += size
        self._limits.hold(size)

    async def _begin(self) -> None:
        self._begun = True
        if self._announced.isdigit() and len(self._announced) < 20 and int(self._announced) > self._limits.limit_bytes:
            await self._refuse()
        if self._encoding not in (b"identity", b""):
            if self._encoding not in _ENCODINGS:
                raise RequestError("this Content-Encoding is unknown: send gzip, deflate or none", "unsupported_media_type")
            self._inflate = _Inflate(_ENCODINGS[self._encoding])

    async def _next(self) -> Message:
        try:
            with Patience(self._deadline - time.monotonic()):
                return await self._receive()
        except TimeIsOverError:
            seconds = self._limits.timeout_s
            raise RequestError(f"the body did not arrive within {seconds:g} s: send it faster", "body_too_slow") from None

    async def _refuse(self) -> None:
        if not self._waits_for_leave:
            await self._drop_rest()
        raise RequestError(f"the body is larger than {self._limits.limit_bytes:,} bytes: send less", "body_too_large")

    async def _drop_rest(self) -> None:
        try:
            async with asyncio.timeout(_LINGER_S):
                while not self._complete:
                    message = await self._receive()
                    self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        except TimeoutError:
            pass


class _Inflate:
    """Decompression that stops at the limit, however small the input was."""

    def __init__(self, window_bits: int) -> None:
        self._bits = window_bits
        self._stream = zlib.decompressobj(window_bits)
        self._size = 0
        self._any = False

    def feed(self, data: bytes, limit_bytes: int, last: bool) -> bytes | None:
        """The plain bytes of this piece; None when they exceed the limit."""
        plain: list[bytes] = []
        try:
            while data:
                if self._stream.eof:
                    self._stream = zlib.decompressobj(self._bits)  # gzip files may be several, one after another
                room = limit_bytes - self._size + 1
                piece = self._decompress(data, room)
                self._size += len(piece)
                if self._size > limit_bytes:
                    return None
                plain.append(piece)
                data = self._stream.unused_data or self._stream.unconsumed_tail
        except zlib.error as error:
            raise RequestError(f"the compressed body is damaged: {error}", "malformed_encoding") from None
        if last and self._any and not self._stream.eof:
            raise RequestError("the compressed body is truncated", "malformed_encoding")
        return b"".join(plain)

    def _decompress(self, data: bytes, room: int) -> bytes:
        first, self._any = not self._any, True
        try:
            return self._stream.decompress(data, room)
        except zlib.error:
            if not first or self._bits != 15:
                raise
            # "deflate" means zlib's format, but some senders leave its header out.
            self._bits = -15
            self._stream = zlib.decompressobj(self._bits)
            return self._stream.decompress(data, room)
