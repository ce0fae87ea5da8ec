"""`POST /v1/classify`, the people's face: pictures or texts in any of three bodies, labels with probabilities out."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from gaussport.errors import GaussportError, ImageError
from gaussport.export.bundle.manifest import FurtherInput
from gaussport.serving.body_limit import whole_body
from gaussport.serving.decoding import Decoder, Prepared
from gaussport.serving.errors import RequestError, request_id_of
from gaussport.serving.front_door import Pictures, pictures_of
from gaussport.serving.made_response import MadeResponse
from gaussport.serving.metrics import Metrics
from gaussport.serving.openapi import CLASSIFY
from gaussport.serving.pictures_only import expect_pictures_suffice
from gaussport.serving.predictions import best, probabilities
from gaussport.serving.presence import while_connected
from gaussport.serving.query import ClassifyQuery
from gaussport.serving.served_model import Rows, ServedModel
from gaussport.serving.served_models import ServedModels
from gaussport.serving.text.classify import Answered, classified
from gaussport.serving.tracing import Tracing
from gaussport.serving.waiting import Answer

_INLINE_BYTES = 128_000  # a smaller body is parsed faster than a thread is woken


def routes(models: ServedModels, decoder: Decoder, metrics: Metrics, tracing: Tracing, max_images: int) -> APIRouter:
    router = APIRouter(tags=["people"])

    @router.post("/v1/classify", openapi_extra=CLASSIFY, response_class=Response)
    async def classify(request: Request) -> Response:
        """Classify pictures or texts, as the model reads: one in the body, multipart `file` parts, or JSON."""
        began = time.monotonic()
        query = ClassifyQuery.of(request.query_params)
        with models.find(query.model, query.version) as served:
            deadline = served.deadline(query.timeout_ms, began)
            served.queue.expect_room(served.seconds_until(deadline))
            if served.manifest.takes_text:
                texts = await classified(request, served, decoder, deadline, query.urgent, max_images)
                return _answer_of_texts(request, served, texts, query, began, metrics, tracing)
            expect_pictures_suffice(served.manifest, served.name)
            pictures, parse_s = await _pictures(request, decoder, max_images)
            work = _answer(served, pictures, decoder, deadline, query.urgent)
            prepared, answer = await while_connected(request, work, served.seconds_until(deadline))
        _count(metrics, served.name, len(prepared.rows), len(prepared.outcomes))
        if len(pictures) == 1:
            prepared.raise_first()
        answered = time.monotonic()
        results = _results(prepared, answer.logits, served.labels, query.top_k)
        timing = _timing_ms(answer.queue_s, prepared.seconds, answer.inference_s, answered - began)
        response = _response(request, served, results, timing)
        _trace(tracing, request, parse_s, prepared.seconds, answer, answered)
        return response

    @router.get("/v1/models")
    async def list_models() -> Response:
        """What is served: names, versions, labels, and where each model runs."""
        return Response(orjson.dumps({"models": [_description(model) for model in models]}), media_type="application/json")

    return router


def _answer_of_texts(
    request: Request,
    served: ServedModel,
    texts: Answered,
    query: ClassifyQuery,
    began: float,
    metrics: Metrics,
    tracing: Tracing,
) -> Response:
    _count(metrics, served.name, len(texts.probabilities), len(texts.outcomes))
    answered = time.monotonic()
    timing = _timing_ms(texts.answer.queue_s, texts.read_s, texts.answer.inference_s, answered - began)
    response = _response(request, served, texts.results(served.labels, query.top_k), timing)
    _trace(tracing, request, 0.0, texts.read_s, texts.answer, answered)  # a body and its texts are read in one go
    return response


def _response(request: Request, served: ServedModel, results: list[dict[str, Any]], timing: dict[str, float]) -> Response:
    content = {
        "model": served.name,
        "version": served.version,
        "request_id": request_id_of(request),
        "results": results,
        "timing_ms": timing,
    }
    return MadeResponse(orjson.dumps(content), b"application/json")


async def _pictures(request: Request, decoder: Decoder, max_images: int) -> tuple[Pictures, float]:
    """The pictures of a request's body, and how long it took to find them in it."""
    body = await whole_body(request)
    began = time.monotonic()
    content_type = request.headers.get("content-type", "")
    if len(body) <= _INLINE_BYTES or content_type.startswith("image/"):
        pictures = pictures_of(content_type, body, max_images)
    else:
        loop = asyncio.get_running_loop()
        pictures = await loop.run_in_executor(decoder.pool, pictures_of, content_type, body, max_images)
    return pictures, time.monotonic() - began


async def _answer(
    served: ServedModel, pictures: Pictures, decoder: Decoder, deadline: float, urgent: bool
) -> tuple[Prepared, Answer]:
    """Every picture prepared or its error, and the logits of the prepared ones."""
    with served.batcher.place(len(pictures), served.seconds_until(deadline)) as place:
        prepared = await decoder.prepare(pictures, served.manifest.preprocessing)
        if not len(prepared.rows):
            return prepared, Answer(np.empty((0, len(served.labels)), np.float32), 0.0, 0.0)
        return prepared, await served.answer(place, prepared.rows, deadline, urgent, prepared.seconds)


def _count(metrics: Metrics, model: str, good: int, all_: int) -> None:
    for outcome, images in (("ok", good), ("refused", all_ - good)):
        if images:
            metrics.images.labels(model, outcome).inc(images)


def _trace(tracing: Tracing, request: Request, parse_s: float, decode_s: float, answer: Answer, answered: float) -> None:
    encode_s = time.monotonic() - answered
    tracing.steps(
        request.scope, parse=parse_s, decode=decode_s, queue=answer.queue_s, inference=answer.inference_s, encode=encode_s
    )


def _timing_ms(queue_s: float, decode_s: float, inference_s: float, total_s: float) -> dict[str, float]:
    steps = {"queue": queue_s, "decode": decode_s, "inference": inference_s, "total": total_s}
    return {name: round(seconds * 1000, 3) for name, seconds in steps.items()}


def _results(prepared: Prepared, logits: Rows, labels: Sequence[str], top_k: int) -> list[dict[str, Any]]:
    rows = iter(probabilities(logits) if len(logits) else ())
    return [
        {"error": {"code": _code(outcome), "message": str(outcome)}}
        if isinstance(outcome, GaussportError)
        else {"predictions": best(next(rows), labels, top_k), "warnings": list(outcome)}
        for outcome in prepared.outcomes
    ]


def _code(error: GaussportError) -> str:
    assert isinstance(error, ImageError | RequestError)
    return error.code


def _input(spec: FurtherInput) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "low": spec.low, "high": spec.high}


def _description(model: ServedModel) -> dict[str, Any]:
    manifest = model.manifest
    return {
        "name": model.name,
        "version": model.version,
        "family": manifest.family,
        "labels": list(model.labels),
        "reads": "text" if manifest.takes_text else "pictures",
        "input": {"name": manifest.input.name, "shape": list(manifest.input.shape)},
        **({"tokenization": manifest.tokenization.model_dump(mode="json")} if manifest.takes_text else {}),
        **({"stream": {"bytes": model.steps.state.itemsize}} if model.steps is not None else {}),
        **({"further_inputs": [_input(spec) for spec in manifest.further_inputs]} if manifest.further_inputs else {}),
        "max_batch": model.max_batch,
        "precision": manifest.precision,
        "provider": model.runtime.provider,
        "metrics": manifest.metrics,
    }
