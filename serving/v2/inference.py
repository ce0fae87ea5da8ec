"""`POST …/infer`: a request off the wire, through the model's queue, and back as its client wants it."""

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gaussport.serving.decoding import Decoder
from gaussport.serving.errors import RequestError
from gaussport.serving.metrics import Metrics
from gaussport.serving.presence import while_connected
from gaussport.serving.served_model import Rows, ServedModel
from gaussport.serving.served_models import ServedModels
from gaussport.serving.v2.metadata import PICTURES_INPUT
from gaussport.serving.v2.openapi import INFER
from gaussport.serving.v2.request import InferRequest, InputTensor, parse, raw_row
from gaussport.serving.v2.response import HEAD_LENGTH, respond, wanted_outputs
from gaussport.serving.v2.tensors import pictures, pixels

_INLINE_BYTES = 64_000  # JSON of this size is parsed in well under a millisecond
_INLINE_NUMBERS = 16_000  # and so many logits are written and compressed in a few


def routes(router: APIRouter, models: ServedModels, decoder: Decoder, metrics: Metrics, max_images: int) -> None:
    async def answer(request: Request, name: str, version: str | None) -> Response:
        with models.find(name, version) as served:
            arrived = served.batcher.clock()
            served.batcher.expect_room(served.seconds_until(served.deadline(None, arrived)))
            body = await request.body()
            parsed, tensor = await _parsed(body, request.headers.get(HEAD_LENGTH), served, decoder)
            outputs = wanted_outputs(parsed, served)
            deadline = served.deadline(parsed.timeout_us / 1000 or None, arrived)
            work = _logits(served, tensor, decoder, deadline, parsed.priority == 1, max_images)
            logits = await while_connected(request, work, served.seconds_until(deadline))
        metrics.images.labels(served.name, "ok").inc(len(logits))
        accepts = request.headers.get("accept-encoding", "")
        if logits.size <= _INLINE_NUMBERS:
            return respond(parsed, served, outputs, logits, accepts)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(decoder.pool, respond, parsed, served, outputs, logits, accepts)

    @router.post("/models/{name}/infer", openapi_extra=INFER, response_class=Response)
    async def infer(request: Request, name: str) -> Response:
        """Run the model: JSON or binary tensors, pixels or encoded pictures."""
        return await answer(request, name, None)

    @router.post("/models/{name}/versions/{version}/infer", openapi_extra=INFER, response_class=Response)
    async def infer_version(request: Request, name: str, version: str) -> Response:
        """Run one version of the model."""
        return await answer(request, name, version)


async def _parsed(
    body: bytes, head_length: str | None, served: ServedModel, decoder: Decoder
) -> tuple[InferRequest, InputTensor]:
    """The request and its one input; a large JSON body is parsed off the loop."""
    if not body:
        raise RequestError("the body is empty: send an inference request", "empty_body")
    if head_length == "0":
        request = raw_row(body, served.manifest.input.name, served.manifest.preprocessing.tensor_shape)
    elif head_length is None and len(body) > _INLINE_BYTES:
        request = await asyncio.get_running_loop().run_in_executor(decoder.pool, parse, body, head_length)
    else:
        request = parse(body, head_length)
    if len(request.inputs) != 1:
        raise RequestError(f"the model takes one input and the request has {len(request.inputs)}", "malformed_request")
    return request, request.inputs[0]


async def _logits(
    served: ServedModel, tensor: InputTensor, decoder: Decoder, deadline: float, urgent: bool, max_images: int
) -> Rows:
    own = served.manifest.input.name
    if tensor.name == PICTURES_INPUT and (tensor.datatype == "BYTES" or own != PICTURES_INPUT):
        return await _of_pictures(served, tensor, decoder, deadline, urgent, max_images)
    if tensor.name != own:
        raise RequestError(f"{served.name} has no such input: send {own} or {PICTURES_INPUT}", "malformed_request")
    shape = served.manifest.preprocessing.tensor_shape
    if tensor.raw is None:
        rows = await asyncio.get_running_loop().run_in_executor(decoder.pool, pixels, tensor, shape)
    else:
        rows = pixels(tensor, shape)
    with served.batcher.place(len(rows), served.seconds_until(deadline)) as place:
        return (await served.answer(place, rows, deadline, urgent)).logits


async def _of_pictures(
    served: ServedModel, tensor: InputTensor, decoder: Decoder, deadline: float, urgent: bool, max_images: int
) -> Rows:
    if tensor.raw is None:
        found = await asyncio.get_running_loop().run_in_executor(decoder.pool, pictures, tensor, max_images)
    else:
        found = pictures(tensor, max_images)
    with served.batcher.place(len(found), served.seconds_until(deadline)) as place:
        prepared = await decoder.prepare(found, served.manifest.preprocessing)
        prepared.raise_first()
        return (await served.answer(place, prepared.rows, deadline, urgent, prepared.seconds)).logits
