"""The answer to an inference request: each output as JSON or binary, or as the best labels of the classification
extension (`score:index:label`)."""

import gzip
import re
import zlib
from typing import Any

import numpy as np
import orjson

from gaussport.serving.errors import RequestError
from gaussport.serving.made_response import MadeResponse
from gaussport.serving.predictions import probabilities
from gaussport.serving.served_model import Rows, ServedModel
from gaussport.serving.v2.metadata import PROBABILITIES
from gaussport.serving.v2.request import InferRequest, OutputRequest
from gaussport.serving.v2.tensors import packed_texts

HEAD_LENGTH = "Inference-Header-Content-Length"
_COMPRESS_FROM_BYTES = 4096
_REFUSED = re.compile(r";\s*q=0(\.0*)?\s*$")


def wanted_outputs(request: InferRequest, served: ServedModel) -> tuple[OutputRequest, ...]:
    """The outputs asked for, checked before any work is done; the model's own when none is named."""
    own = served.manifest.output.name
    for output in request.outputs:
        if output.name not in (own, PROBABILITIES):
            raise RequestError(f"{served.name} has no such output: it has {own} and {PROBABILITIES}", "unknown_output")
    return request.outputs or (OutputRequest(own, request.binary_by_default, 0),)


def respond(
    request: InferRequest, served: ServedModel, outputs: tuple[OutputRequest, ...], logits: Rows, accepts: str
) -> MadeResponse:
    head: dict[str, Any] = {"model_name": served.name, "model_version": served.version}
    if request.id is not None:
        head["id"] = request.id
    tails: list[bytes] = []
    head["outputs"] = [_output(output, served, logits, tails) for output in outputs]
    content = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    headers = []
    media_type = b"application/json"
    if tails:
        headers.append((HEAD_LENGTH.lower().encode(), b"%d" % len(content)))
        media_type = b"application/octet-stream"
        content = b"".join((content, *tails))
    if len(content) >= _COMPRESS_FROM_BYTES:
        content, encoding = _compressed(content, accepts)
        if encoding:
            headers += [(b"content-encoding", encoding), (b"vary", b"Accept-Encoding")]
    return MadeResponse(content, media_type, headers)


def _output(output: OutputRequest, served: ServedModel, logits: Rows, tails: list[bytes]) -> dict[str, Any]:
    values = logits if output.name != PROBABILITIES else probabilities(logits).astype(np.float32)
    if output.classes:
        texts = _best(values, served.labels, output.classes)
        shape, datatype = [len(texts), len(texts[0])], "BYTES"
        flat = [text for row in texts for text in row]
        binary = packed_texts(flat) if output.binary else b""
        data: Any = flat
    else:
        shape, datatype = list(values.shape), "FP32"
        binary = values.astype("<f4", copy=False).tobytes() if output.binary else b""
        data = None if output.binary else np.ascontiguousarray(values).reshape(-1)
    entry: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": shape}
    if output.binary:
        tails.append(binary)
        return entry | {"parameters": {"binary_data_size": len(binary)}}
    return entry | {"data": data}


def _best(values: Rows, labels: tuple[str, ...], classes: int) -> list[list[str]]:
    return [
        [f"{row[index]:f}:{index}:{labels[index]}" for index in np.argsort(-row, kind="stable")[:classes].tolist()]
        for row in values
    ]


def _compressed(content: bytes, accepts: str) -> tuple[bytes, bytes]:
    """Content compressed as the client accepts it, and the name of that; unchanged and no name when it does not."""
    if not accepts:
        return content, b""
    codings = {part.partition(";")[0].strip().lower() for part in accepts.split(",") if not _REFUSED.search(part)}
    if "gzip" in codings:
        return gzip.compress(content, 1, mtime=0), b"gzip"
    if "deflate" in codings:
        return zlib.compress(content, 1), b"deflate"
    return content, b""
