"""Streams over a WebSocket: each message is a chunk, each answer the running prediction.

`/v1/streams/socket` opens a stream that ends with the connection; `/v1/streams/ID/socket` goes on with one that is open. A
binary message is bytes as they are, a text message is text. A chunk that is refused is answered with an error, the stream
stays as it was and the connection open, unless the stream itself is gone.
"""

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import orjson
from fastapi import APIRouter
from prometheus_client import Counter
from starlette.websockets import WebSocket, WebSocketDisconnect

from gaussport.errors import TextError
from gaussport.serving.errors import RequestError, count_as, error_content, error_response
from gaussport.serving.metrics import Metrics
from gaussport.serving.served_models import ServedModels
from gaussport.serving.settings import Settings
from gaussport.serving.streams.chunks import tokens_of_piece
from gaussport.serving.streams.query import ChunkQuery, ttl_of
from gaussport.serving.streams.registry import Stream, Streams
from gaussport.serving.streams.routes import answer_of

_GOING, _POLICY = 1001, 1008
_ENDED = {"stream_unknown", "draining"}


def routes(models: ServedModels, streams: Streams, settings: Settings, metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.websocket("/v1/streams/socket")
    async def own(socket: WebSocket) -> None:
        """A stream for as long as the connection lasts."""
        try:
            _expect_known_origin(socket, settings)
            query, ttl_s = ChunkQuery.of(socket.query_params), ttl_of(socket.query_params)
            with models.find(query.asked.model, query.asked.version) as served:
                stream = streams.open(served, ttl_s)
        except RequestError as error:
            await _deny(socket, error)
            return
        try:
            await _serve(socket, stream, streams, query, metrics.socket_messages)
        finally:
            streams.close(stream, "its connection was closed")

    @router.websocket("/v1/streams/{stream}/socket")
    async def attached(socket: WebSocket, stream: str) -> None:
        """An open stream, which outlives the connection."""
        try:
            _expect_known_origin(socket, settings)
            query, found = ChunkQuery.of(socket.query_params), streams.find(stream)
        except RequestError as error:
            await _deny(socket, error)
            return
        await _serve(socket, found, streams, query, metrics.socket_messages)

    return router


async def _serve(socket: WebSocket, stream: Stream, streams: Streams, query: ChunkQuery, messages: Counter) -> None:
    await socket.accept()
    try:
        while True:
            piece = await _next(socket, stream)
            if piece is None:
                if streams.ended(stream):
                    await _refuse(socket, stream, streams)
                    return
                continue
            code, answer = await _answer(socket, stream, streams, query, piece)
            messages.labels(stream.served.name, code or "ok").inc()
            await _send(socket, answer)
            if code in _ENDED:
                await socket.close(_POLICY if code == "stream_unknown" else _GOING, code)
                return
    except WebSocketDisconnect:
        pass


async def _next(socket: WebSocket, stream: Stream) -> bytes | str | None:
    """The next message; None when none has come for as long as the stream may be idle."""
    try:
        async with asyncio.timeout(stream.ttl_s):
            message = await socket.receive()
    except TimeoutError:
        return None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", _GOING))
    piece: bytes | str | None = message.get("bytes")
    return str(message.get("text") or "") if piece is None else piece


async def _answer(
    socket: WebSocket, stream: Stream, streams: Streams, query: ChunkQuery, piece: bytes | str
) -> tuple[str, dict[str, Any]]:
    """The code of the error, empty if there is none, and what is said to this chunk."""
    began = time.monotonic()
    try:
        tokens = tokens_of_piece(piece, stream.served.reader)
        deadline = stream.served.deadline(query.asked.timeout_ms, began)
        advanced = await streams.advance(streams.find(stream.id), tokens, deadline, query.asked.urgent)
    except (RequestError, TextError) as error:
        return error.code, dict(error_content(str(error), error.code, _id(socket)))
    return "", {"stream": stream.id} | answer_of(stream, advanced, query.asked.top_k, time.monotonic() - began)


async def _refuse(socket: WebSocket, stream: Stream, streams: Streams) -> None:
    try:
        streams.find(stream.id)
    except RequestError as error:
        await _send(socket, error_content(str(error), error.code, _id(socket)))
        await socket.close(_POLICY, error.code)


async def _send(socket: WebSocket, content: dict[str, Any]) -> None:
    await socket.send_text(orjson.dumps(content).decode())


async def _deny(socket: WebSocket, error: RequestError) -> None:
    """Instead of the handshake, the answer that any other route would give."""
    count_as(socket.scope, error.code)
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    await socket.send_denial_response(error_response(str(error), error.code, _id(socket), headers=headers))


def _id(socket: WebSocket) -> str:
    return str(socket.scope.get("gaussport.request_id", ""))


def _expect_known_origin(socket: WebSocket, settings: Settings) -> None:
    """A browser lets any page open a socket to any server, and says which page: `--cors-origins` hold here too."""
    origin = socket.headers.get("origin")
    known = settings.cors_origins
    if origin is None or "*" in known or origin in known or urlsplit(origin).netloc == socket.headers.get("host"):
        return
    raise RequestError("pages of this origin may not call: the operator can let them by --cors-origins", "forbidden")
