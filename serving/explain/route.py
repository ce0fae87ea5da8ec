"""`POST /v1/explain`: what each head looked at in one picture, as numbers or as a drawing."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from numpy.typing import NDArray

from gaussport.serving.decoding import Decoder, Prepared
from gaussport.serving.errors import RequestError, request_id_of
from gaussport.serving.explain.explainer import Explained, Explainer
from gaussport.serving.explain.numbers import available, layer_explanations
from gaussport.serving.explain.openapi import EXPLAIN
from gaussport.serving.explain.query import ExplainQuery
from gaussport.serving.explain.queue import ExplainQueue
from gaussport.serving.explain.seen import Picture
from gaussport.serving.explain.text.route import explained_body
from gaussport.serving.front_door import pictures_of
from gaussport.serving.pictures_only import expect_pictures_suffice
from gaussport.serving.predictions import best, probabilities
from gaussport.serving.presence import while_connected
from gaussport.serving.served_model import ServedModel
from gaussport.serving.served_models import ServedModels

_TOP_K = 5


@dataclass(frozen=True)
class _Made:
    """An explanation made in the queue's thread: JSON without what the request knows, or a PNG."""

    content: dict[str, Any] | bytes
    seconds: float


def routes(models: ServedModels, decoder: Decoder, queue: ExplainQueue) -> APIRouter:
    router = APIRouter(tags=["people"])

    @router.post("/v1/explain", openapi_extra=EXPLAIN, response_class=Response)
    async def explain(request: Request) -> Response:
        """Explain one picture or text: fields and steering, or responsibilities, of the chosen layers and heads."""
        began = time.monotonic()
        query = ExplainQuery.of(request.query_params)
        if query.format == "png":
            _expect_matplotlib()
        with models.find(query.model, query.version) as served:
            queue.expect_explainable(served)
            if served.manifest.takes_text:
                queue.expect_room()
                deadline = served.deadline(query.timeout_ms, began)
                content = await explained_body(request, served, queue, query, deadline)
                return _of_text(request, served, content, began)
            expect_pictures_suffice(served.manifest, served.name)
            queue.expect_room()
            deadline = served.deadline(query.timeout_ms, began)
            pictures = pictures_of(request.headers.get("content-type", ""), await request.body(), 1)
            prepared = await while_connected(
                request, decoder.prepare(pictures, served.manifest.preprocessing), served.seconds_until(deadline)
            )
            prepared.raise_first()
            asked = time.monotonic()
            work = queue.run(served, lambda explainer: _explained(explainer, prepared.rows, query))
            made = await while_connected(request, work, served.seconds_until(deadline))
        if isinstance(made.content, bytes):
            return Response(made.content, media_type="image/png")
        ended = time.monotonic()
        times = {
            "queue": ended - asked - made.seconds,
            "decode": prepared.seconds,
            "explain": made.seconds,
            "total": ended - began,
        }
        return Response(
            orjson.dumps(_document(request, served, prepared, made.content, times)), media_type="application/json"
        )

    return router


def _of_text(request: Request, served: ServedModel, content: dict[str, Any], began: float) -> Response:
    facts = {"model": served.name, "version": served.version, "request_id": request_id_of(request)}
    timing = {"total": round((time.monotonic() - began) * 1000, 3)}
    return Response(orjson.dumps({**facts, **content, "timing_ms": timing}), media_type="application/json")


def _explained(explainer: Explainer, rows: NDArray[np.float32], query: ExplainQuery) -> _Made:
    began = time.monotonic()
    explained = explainer.run(rows)
    views = explained.views(0)
    query.check_cost(views)
    picture = Picture.of(rows[0], explainer.manifest.preprocessing)
    content: dict[str, Any] | bytes
    if query.format == "png":
        from gaussport.serving.explain.drawing import heads_figure, rendered

        content = rendered(heads_figure(picture, views, query.selection), "png")
    else:
        content = {
            "predictions": _predictions(explainer, explained),
            **({"seen": picture.data_uri()} if query.seen else {}),
            "available": [available(view) for view in views],
            "layers": layer_explanations(views, query.selection, query.tokens),
        }
    return _Made(content, time.monotonic() - began)


def _predictions(explainer: Explainer, explained: Explained) -> list[dict[str, Any]]:
    labels = explainer.manifest.labels
    return best(probabilities(explained.logits)[0], labels, min(_TOP_K, len(labels)))


def _document(
    request: Request, served: ServedModel, prepared: Prepared, content: dict[str, Any], times: dict[str, float]
) -> dict[str, Any]:
    warnings = prepared.outcomes[0]
    return {
        "model": served.name,
        "version": served.version,
        "request_id": request_id_of(request),
        "warnings": list(warnings) if isinstance(warnings, tuple) else [],
        **content,
        "timing_ms": {name: round(seconds * 1000, 3) for name, seconds in times.items()},
    }


def _expect_matplotlib() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise RequestError("parameter format: this server cannot draw, ask for json", "bad_parameter")
