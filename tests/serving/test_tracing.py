"""Spans of a request's steps, the same on both faces."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gaussport.serving.app import build_app
from gaussport.serving.settings import Settings
from gaussport.serving.tracing import OpenTelemetry
from tests.serving.conftest import encoded, picture
from tests.serving.texts import write_texts

Span = dict[str, Any]
STEPS = ["parse", "decode", "queue", "inference", "encode"]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traced(bundle: Path, path: str, **options: Any) -> tuple[httpx.Response, list[Span]]:
    """The answer to one POST, and its spans, the request's own first."""
    headers = {"traceparent": PARENT, **options.get("headers", {})}
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = build_app([bundle], Settings(threads=1), OpenTelemetry(provider))

    async def ask() -> httpx.Response:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local") as http,
        ):
            return await http.post(path, **{**options, "headers": headers})

    answer = asyncio.run(ask())
    spans = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
    return answer, sorted(spans, key=lambda span: span["parent_id"] != "0xb7ad6b7169203331")


def expect_steps(route: str, answer: httpx.Response, spans: list[Span]) -> None:
    assert answer.status_code == 200, answer.text
    request, *steps = spans
    assert request["name"] == f"POST {route}"
    assert request["context"]["trace_id"] == "0x0af7651916cd43dd8448eb211c80319c"
    assert request["attributes"]["gaussport.request_id"] == answer.headers["x-request-id"]
    assert sorted(step["name"] for step in steps) == sorted(STEPS)
    by_name = {step["name"]: step for step in steps}
    ends = [by_name[name]["end_time"] for name in STEPS]
    assert ends == sorted(ends)
    for step in steps:
        assert step["parent_id"] == request["context"]["span_id"], step["name"]
        assert request["start_time"] <= step["start_time"] <= step["end_time"] <= request["end_time"], step["name"]


def as_json(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"json": {"inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": data}]}}


PNG = encoded(picture(5))
BINARY = {"headers": {"Inference-Header-Content-Length": "0"}, "content": np.zeros((3, 8, 8), np.float32).tobytes()}
INFER = "/v2/models/tiny/infer"


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/v1/classify", {"content": PNG}),
        (INFER, as_json("pixels", "FP32", [1, 3, 8, 8], [0.5] * 192)),
        (INFER, as_json("image", "BYTES", [1], [base64.b64encode(PNG).decode()])),
        ("/v2/models/tiny/versions/1/infer", BINARY),
    ],
    ids=["classify", "json", "picture", "binary"],
)
def test_pictures_and_tensors(tiny: Path, path: str, options: dict[str, Any]) -> None:
    route = path.replace("tiny", "{name}").replace("versions/1", "versions/{version}")
    expect_steps(route, *traced(tiny, path, **options))


def test_texts(tmp_path: Path) -> None:
    bundle = write_texts(tmp_path / "texts")
    expect_steps("/v1/classify", *traced(bundle, "/v1/classify", json={"text": "a text"}))
    infer = as_json("text", "BYTES", [1], ["a text"])
    expect_steps("/v2/models/{name}/infer", *traced(bundle, "/v2/models/texts/infer", **infer))


def test_a_request_that_fails_has_its_code(tiny: Path) -> None:
    answer, (request,) = traced(tiny, INFER, **as_json("pixels", "FP32", [1, 3, 8, 9], [0.5]))
    assert answer.status_code == 400
    assert request["attributes"]["error.type"] == answer.json()["code"] == "malformed_tensor"
