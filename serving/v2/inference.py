"""`POST …/infer`: a request off the wire, through the model's queue, and back as its client wants it."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gaussport.serving.body_limit import Body, body_as_it_lies
from gaussport.serving.decoding import Decoder
from gaussport.serving.errors import RequestError
from gaussport.serving.presence import while_connected
from gaussport.serving.served_model import Rows, ServedModel
from gaussport.serving.served_models import ServedModels
from gaussport.serving.tracing import Tracing
from gaussport.serving.v2.inputs import Given, given
from gaussport.serving.v2.openapi import INFER
from gaussport.serving.v2.request import InferRequest, parse, raw_row
from gaussport.serving.v2.response import HEAD_LENGTH, respond, wanted_outputs
from gaussport.serving.v2.tensors import pictures, pixels
from gaussport.serving.v2.texts import answer_of_texts
from gaussport.serving.waiting import Answer

_HEAD_LENGTH = HEAD_LENGTH.lower().encode()
_INLINE_BYTES = 64_000  # JSON of this size is parsed in well under a millisecond
_INLINE_NUMBERS = 16_000  # and so many logits are written and compressed in a few


def routes(router: APIRouter, models: ServedModels, decoder: Decoder, tracing: Tracing, max_images: int) -> None:
    async def answer(request: Request, name: str, version: str | None) -> Response:
        with models.find(name, version) as served:
            arrived = served.queue.clock()
            served.queue.expect_room(served.seconds_until(served.deadline(None, arrived)))
            body = await body_as_it_lies(request)
            received = time.monotonic()
            headers = dict(request.scope["headers"])
            head_length = headers.get(_HEAD_LENGTH)
            parsed = await _parsed(body, None if head_length is None else head_length.decode("latin-1"), served, decoder)
            inputs = given(parsed, served.manifest, served.name)
            outputs = wanted_outputs(parsed, served)
            parse_s = time.monotonic() - received
            deadline = served.deadline(parsed.timeout_us / 1000 or None, arrived)
            work = _answer(served, inputs, decoder, deadline, parsed.priority == 1, max_images)
            found, decode_s = await while_connected(request, work, served.seconds_until(deadline))
        answered, logits = time.monotonic(), found.logits
        served.count_answered(len(logits))
        accepts = headers.get(b"accept-encoding", b"").decode("latin-1")
        if logits.size <= _INLINE_NUMBERS:
            response = respond(parsed, served, outputs, logits, accepts)
        else:
            loop = asyncio.get_running_loop()
            response = await loop.run_in_executor(decoder.pool, respond, parsed, served, outputs, logits, accepts)
        encode_s = time.monotonic() - answered
        tracing.steps(
            request.scope, parse=parse_s, decode=decode_s, queue=found.queue_s, inference=found.inference_s, encode=encode_s
        )
        return response

    @router.post("/models/{name}/infer", openapi_extra=INFER, response_class=Response)
    async def infer(request: Request, name: str) -> Response:
        """Run the model: JSON or binary tensors; pixels or encoded pictures, tokens or texts."""
        return await answer(request, name, None)

    @router.post("/models/{name}/versions/{version}/infer", openapi_extra=INFER, response_class=Response)
    async def infer_version(request: Request, name: str, version: str) -> Response:
        """Run one version of the model."""
        return await answer(request, name, version)


async def _parsed(body: Body, head_length: str | None, served: ServedModel, decoder: Decoder) -> InferRequest:
    """The request; a large JSON body is parsed off the loop."""
    if not body:
        raise RequestError("the body is empty: send an inference request", "empty_body")
    if head_length == "0":
        if served.manifest.takes_text:
            raise RequestError("a bare row has no length: send the tokens as a tensor with its shape", "malformed_request")
        return raw_row(body, served.manifest.input.name, served.manifest.preprocessing.tensor_shape)
    if head_length is None and len(body) > _INLINE_BYTES:
        return await asyncio.get_running_loop().run_in_executor(decoder.pool, parse, body, head_length)
    return parse(body, head_length)


async def _answer(
    served: ServedModel, inputs: Given, decoder: Decoder, deadline: float, urgent: bool, max_images: int
) -> tuple[Answer, float]:
    """The model's answer, and the seconds before its queue: numbers read, pictures decoded or texts cut."""
    if served.manifest.takes_text:
        return await answer_of_texts(served, inputs, decoder, deadline, urgent, max_images)
    if inputs.encoded:
        return await _of_pictures(served, inputs, decoder, deadline, urgent, max_images)
    began = time.monotonic()
    rows = await _made(inputs, decoder, partial(_rows, served, inputs))
    made_s = time.monotonic() - began
    with served.batcher.place(len(rows), served.seconds_until(deadline)) as place:
        return await served.answer(place, rows, deadline, urgent), made_s


async def _made(inputs: Given, decoder: Decoder, make: Callable[[], Rows]) -> Rows:
    """What `make` gives; off the loop when there is JSON to convert."""
    if inputs.as_json:
        return await asyncio.get_running_loop().run_in_executor(decoder.pool, make)
    return make()


def _rows(served: ServedModel, inputs: Given) -> Rows:
    return inputs.with_pixels(served.manifest, pixels(inputs.first, served.manifest.preprocessing.tensor_shape))


async def _of_pictures(
    served: ServedModel, inputs: Given, decoder: Decoder, deadline: float, urgent: bool, max_images: int
) -> tuple[Answer, float]:
    if inputs.first.raw is None:
        found = await asyncio.get_running_loop().run_in_executor(decoder.pool, pictures, inputs.first, max_images)
    else:
        found = pictures(inputs.first, max_images)
    with served.batcher.place(len(found), served.seconds_until(deadline)) as place:
        prepared = await decoder.prepare(found, served.manifest.preprocessing)
        prepared.raise_first()
        rows = prepared.rows
        if inputs.beside:
            rows = await _made(inputs, decoder, partial(inputs.with_pixels, served.manifest, rows))
        return await served.answer(place, rows, deadline, urgent, prepared.seconds), prepared.seconds
