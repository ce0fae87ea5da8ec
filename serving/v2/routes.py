"""The routes of the Open Inference Protocol v2."""

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from gaussport.serving.decoding import Decoder
from gaussport.serving.errors import STATUS, RequestError, error_content, request_id_of
from gaussport.serving.metrics import Metrics
from gaussport.serving.openapi import INFER
from gaussport.serving.presence import while_connected
from gaussport.serving.served_model import Rows, ServedModel
from gaussport.serving.served_models import ServedModels
from gaussport.serving.v2 import metadata
from gaussport.serving.v2.request import InferRequest, InputTensor, parse
from gaussport.serving.v2.response import HEAD_LENGTH, respond, wanted_outputs
from gaussport.serving.v2.tensors import pictures, pixels

PICTURES_INPUT = "image"
_INLINE_BYTES = 64_000  # JSON of this size is parsed in well under a millisecond


def routes(models: ServedModels, decoder: Decoder, metrics: Metrics, max_images: int) -> APIRouter:
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
    _health_routes(router, models)
    _model_routes(router, models)

    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        """Run the model: JSON or binary tensors, pixels or encoded pictures."""
        with models.find(name, version) as served:
            arrived = served.batcher.clock()
            served.batcher.expect_room(served.seconds_until(served.deadline(None, arrived)))
            body = await request.body()
            parsed, tensor = await _parsed(body, request.headers.get(HEAD_LENGTH), decoder)
            outputs = wanted_outputs(parsed, served)
            deadline = served.deadline(parsed.timeout_us / 1000 or None, arrived)
            work = _answer(served, tensor, decoder, deadline, parsed.priority == 1, max_images)
            logits = await while_connected(request, work, served.seconds_until(deadline))
        metrics.images.labels(served.name, "ok").inc(len(logits))
        return respond(parsed, served, outputs, logits, request.headers.get("accept-encoding", ""))

    for path in ("/models/{name}/infer", "/models/{name}/versions/{version}/infer"):
        router.post(path, openapi_extra=INFER, response_class=Response)(infer)
    return router


def _health_routes(router: APIRouter, models: ServedModels) -> None:
    @router.get("")
    async def server() -> Response:
        """Name, version and extensions."""
        return _json(metadata.server())

    @router.get("/health/live")
    async def live() -> Response:
        """The process answers."""
        return _json({"live": True})

    @router.get("/health/ready")
    async def ready(request: Request) -> Response:
        """The server takes requests; false from the moment it is told to stop."""
        if models.ready:
            return _json({"ready": True})
        message, code = ("the server is stopping", "draining") if models.draining else (models.why_not_ready, "not_ready")
        content = error_content(message, code, request_id_of(request))
        return _json({"ready": False, **content}, STATUS[code])


def _model_routes(router: APIRouter, models: ServedModels) -> None:
    async def describe(name: str, version: str | None = None) -> Response:
        """Inputs and outputs."""
        return _json(metadata.model(models.find(name, version), models.versions(name)))

    async def ready(name: str, version: str | None = None) -> Response:
        """Whether this model takes requests."""
        served = models.find(name, version)
        if models.draining:
            raise RequestError("the server is stopping", "draining")
        return _json({"name": served.name, "ready": True})

    async def config(name: str, version: str | None = None) -> Response:
        """The model's configuration in Triton's form."""
        return _json(metadata.config(models.find(name, version)))

    for base in ("/models/{name}", "/models/{name}/versions/{version}"):
        router.get(base)(describe)
        router.get(f"{base}/ready")(ready)
        router.get(f"{base}/config")(config)


async def _parsed(body: bytes, head_length: str | None, decoder: Decoder) -> tuple[InferRequest, InputTensor]:
    """The request and its one input; a large JSON body is parsed off the loop."""
    if not body:
        raise RequestError("the body is empty: send an inference request", "empty_body")
    if head_length is None and len(body) > _INLINE_BYTES:
        request = await asyncio.get_running_loop().run_in_executor(decoder.pool, parse, body, head_length)
    else:
        request = parse(body, head_length)
    if len(request.inputs) != 1:
        raise RequestError(f"the model takes one input and the request has {len(request.inputs)}", "malformed_request")
    return request, request.inputs[0]


async def _answer(
    served: ServedModel, tensor: InputTensor, decoder: Decoder, deadline: float, urgent: bool, max_images: int
) -> Rows:
    own = served.manifest.input.name
    if tensor.name == PICTURES_INPUT and (tensor.datatype == "BYTES" or own != PICTURES_INPUT):
        found = pictures(tensor, max_images)
        with served.batcher.place(len(found), served.seconds_until(deadline)) as place:
            prepared = await decoder.prepare(found, served.manifest.preprocessing)
            prepared.raise_first()
            return (await served.answer(place, prepared.rows, deadline, urgent, prepared.seconds)).logits
    if tensor.name != own:
        raise RequestError(f"{served.name} has no such input: send {own} or {PICTURES_INPUT}", "malformed_request")
    shape = served.manifest.preprocessing.tensor_shape
    if tensor.raw is None:
        rows = await asyncio.get_running_loop().run_in_executor(decoder.pool, pixels, tensor, shape)
    else:
        rows = pixels(tensor, shape)
    with served.batcher.place(len(rows), served.seconds_until(deadline)) as place:
        return (await served.answer(place, rows, deadline, urgent)).logits


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
