"""`POST /v1/classify`, the people's face: pictures in any of three bodies, labels with probabilities out."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from gaussport.errors import GaussportError, ImageError
from gaussport.serving.decoding import Decoder, Prepared
from gaussport.serving.errors import RequestError, request_id_of
from gaussport.serving.front_door import Pictures, pictures_of
from gaussport.serving.metrics import Metrics
from gaussport.serving.openapi import CLASSIFY
from gaussport.serving.predictions import best, probabilities
from gaussport.serving.presence import while_connected
from gaussport.serving.served_model import Rows, ServedModel, ServedModels

_INLINE_BYTES = 128_000  # a smaller body is parsed faster than a thread is woken
_HIGHEST = 1  # of Triton's priorities; 0 is the default and every other number is below 1


def routes(models: ServedModels, decoder: Decoder, metrics: Metrics, max_images: int) -> APIRouter:
    router = APIRouter(tags=["people"])

    @router.post("/v1/classify", openapi_extra=CLASSIFY, response_class=Response)
    async def classify(
        request: Request,
        top_k: Annotated[int, Query(ge=1, description="labels for each image, at most all")] = 5,
        model: Annotated[str | None, Query(description="name of a model of /v1/models; default the first")] = None,
        timeout_ms: Annotated[float | None, Query(gt=0, le=3_600_000, allow_inf_nan=False)] = None,
        priority: Annotated[int, Query(ge=0, description="1 goes before all others; 0 is the default")] = 0,
    ) -> Response:
        """Classify one picture or several: raw `image/*`, multipart `file` parts, or base64 in JSON."""
        began = time.monotonic()
        served = models.find(model)
        deadline = served.deadline(timeout_ms, began)
        pictures = await _pictures(request, decoder, max_images)
        work = _answer(served, pictures, decoder, deadline, priority == _HIGHEST)
        prepared, answer = await while_connected(request, work, served.seconds_until(deadline))
        for outcome in prepared:
            metrics.images.labels(served.name, "ok" if isinstance(outcome, Prepared) else "refused").inc()
        if len(prepared) == 1 and isinstance(prepared[0], GaussportError):
            raise prepared[0]
        content = {
            "model": served.name,
            "version": served.version,
            "request_id": request_id_of(request),
            "results": _results(prepared, answer.logits, served.labels, top_k),
            "timing_ms": answer.timing_ms(time.monotonic() - began),
        }
        return Response(orjson.dumps(content), media_type="application/json")

    @router.get("/v1/models")
    async def list_models() -> Response:
        """What is served: names, versions, labels, and where each model runs."""
        return Response(orjson.dumps({"models": [_description(model) for model in models]}), media_type="application/json")

    return router


@dataclass(frozen=True)
class _Timed:
    """The logits of the good pictures, in order, and the seconds of each step."""

    logits: Rows
    queue_s: float
    decode_s: float
    inference_s: float

    def timing_ms(self, total_s: float) -> dict[str, float]:
        steps = {"queue": self.queue_s, "decode": self.decode_s, "inference": self.inference_s, "total": total_s}
        return {name: round(seconds * 1000, 3) for name, seconds in steps.items()}


async def _pictures(request: Request, decoder: Decoder, max_images: int) -> Pictures:
    body = await request.body()
    content_type = request.headers.get("content-type", "")
    if len(body) <= _INLINE_BYTES or content_type.startswith("image/"):
        return pictures_of(content_type, body, max_images)
    return await asyncio.get_running_loop().run_in_executor(decoder.pool, pictures_of, content_type, body, max_images)


async def _answer(
    served: ServedModel, pictures: Pictures, decoder: Decoder, deadline: float, urgent: bool
) -> tuple[list[Prepared | GaussportError], _Timed]:
    """Every picture prepared or its error, and the logits of the prepared ones."""
    with served.batcher.place(len(pictures)) as place:
        began = time.monotonic()
        prepared = await decoder.prepare(pictures, served.manifest.preprocessing)
        decode_s = time.monotonic() - began
        good = [outcome.pixels for outcome in prepared if isinstance(outcome, Prepared)]
        if not good:
            return prepared, _Timed(np.empty((0, len(served.labels)), np.float32), 0.0, decode_s, 0.0)
        rows = good[0][None] if len(good) == 1 else np.stack(good)
        answer = await served.answer(place, rows, deadline, urgent)
        return prepared, _Timed(answer.logits, answer.queue_s, decode_s, answer.inference_s)


def _results(
    prepared: Sequence[Prepared | GaussportError], logits: Rows, labels: Sequence[str], top_k: int
) -> list[dict[str, Any]]:
    rows = iter(probabilities(logits) if len(logits) else ())
    return [
        {"predictions": best(next(rows), labels, top_k), "warnings": list(outcome.warnings)}
        if isinstance(outcome, Prepared)
        else {"error": {"code": _code(outcome), "message": str(outcome)}}
        for outcome in prepared
    ]


def _code(error: GaussportError) -> str:
    assert isinstance(error, ImageError | RequestError)
    return error.code


def _description(model: ServedModel) -> dict[str, Any]:
    manifest = model.manifest
    return {
        "name": model.name,
        "version": model.version,
        "family": manifest.family,
        "labels": list(model.labels),
        "input": {"name": manifest.input.name, "shape": list(manifest.input.shape)},
        "max_batch": model.max_batch,
        "precision": manifest.precision,
        "provider": model.runtime.provider,
        "metrics": manifest.metrics,
    }
