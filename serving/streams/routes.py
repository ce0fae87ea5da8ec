"""`/v1/streams` over HTTP: open, send chunks, look, close."""

import asyncio
import time
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from numpy.typing import NDArray

from gaussport.serving.body_limit import whole_body
from gaussport.serving.errors import request_id_of
from gaussport.serving.predictions import best, probabilities
from gaussport.serving.presence import while_connected
from gaussport.serving.served_models import ServedModels
from gaussport.serving.streams import openapi
from gaussport.serving.streams.chunks import tokens_of
from gaussport.serving.streams.query import ChunkQuery, ttl_of
from gaussport.serving.streams.registry import Advanced, Stream, Streams

_INLINE_BYTES = 64_000


def routes(models: ServedModels, streams: Streams) -> APIRouter:
    router = APIRouter(tags=["streams"])

    @router.post("/v1/streams", openapi_extra=openapi.OPEN, response_class=Response, status_code=201)
    async def open_stream(request: Request) -> Response:
        """Open a stream on a causal model of text."""
        await whole_body(request)  # whatever a client sends along is no part of the text
        ttl_s = ttl_of(request.query_params)
        with models.find(request.query_params.get("model"), request.query_params.get("version")) as served:
            stream = streams.open(served, ttl_s)
        headers = {"Location": f"/v1/streams/{stream.id}"}
        return _json(_facts(request, stream) | _limits(stream), 201, headers)

    @router.post("/v1/streams/{stream}", openapi_extra=openapi.CHUNK, response_class=Response)
    async def send(request: Request, stream: str) -> Response:
        """Send the next chunk; the answer is the prediction for the whole stream so far."""
        began = time.monotonic()
        query, found = ChunkQuery.of(request.query_params), streams.find(stream)
        served = found.served
        deadline = served.deadline(query.asked.timeout_ms, began)
        body, content_type = await whole_body(request), request.headers.get("content-type", "")
        if len(body) <= _INLINE_BYTES:
            tokens = tokens_of(content_type, body, served.reader)
        else:
            tokens = await asyncio.to_thread(tokens_of, content_type, body, served.reader)
        work = streams.advance(streams.find(stream), tokens, deadline, query.asked.urgent, query.offset)
        advanced = await while_connected(request, work, served.seconds_until(deadline))
        total_s = time.monotonic() - began
        return _json(_facts(request, found) | answer_of(found, advanced, query.asked.top_k, total_s))

    @router.get("/v1/streams/{stream}", openapi_extra=openapi.LOOK, response_class=Response)
    async def look(request: Request, stream: str) -> Response:
        """How many tokens the stream has had, and the prediction for them."""
        query, found = ChunkQuery.of(request.query_params), streams.find(stream)
        facts = _facts(request, found) | _limits(found) | {"idle_s": round(streams.idle_s(found), 3)}
        return _json(facts | {"predictions": predictions_of(found, found.logits, query.asked.top_k)})

    @router.delete("/v1/streams/{stream}", openapi_extra=openapi.CLOSE, response_class=Response)
    async def close(request: Request, stream: str) -> Response:
        """Close the stream; its memory is free at once."""
        found = streams.find(stream)
        streams.close(found)
        return _json(_facts(request, found))

    return router


def answer_of(stream: Stream, advanced: Advanced, top_k: int, total_s: float) -> dict[str, Any]:
    """What is said after a chunk, over HTTP and over a socket."""
    steps = {"queue": advanced.queue_s, "inference": advanced.inference_s, "total": total_s}
    return {
        "tokens": advanced.tokens,
        "predictions": predictions_of(stream, advanced.logits, top_k),
        "timing_ms": {name: round(seconds * 1000, 3) for name, seconds in steps.items()},
    }


def predictions_of(stream: Stream, logits: NDArray[np.float32] | None, top_k: int) -> list[dict[str, Any]]:
    """Nothing before the first token."""
    return [] if logits is None else best(probabilities(logits[np.newaxis])[0], stream.served.labels, top_k)


def _facts(request: Request, stream: Stream) -> dict[str, Any]:
    served = stream.served
    return {
        "stream": stream.id,
        "model": served.name,
        "version": served.version,
        "request_id": request_id_of(request),
        "tokens": stream.tokens,
    }


def _limits(stream: Stream) -> dict[str, Any]:
    return {"ttl_s": stream.ttl_s, "bytes": stream.state.nbytes}


def _json(content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")
