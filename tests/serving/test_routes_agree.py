"""The same picture gives the same probabilities on every route and through a client of another project."""

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from gaussport.export.bundle.store import open_bundle
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import to_pixels
from gaussport.serving.predictions import probabilities
from gaussport.serving.runtime import Runtime

TOLERANCE = 1e-6
"""Batch sizes differ between routes, and with them the order of sums in float32."""


@pytest.fixture
def png(make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]) -> bytes:
    return encode(make_picture(7))


@pytest.fixture
def pixels(png: bytes, tiny: Path) -> NDArray[np.float32]:
    spec = open_bundle(tiny).manifest.preprocessing
    return to_pixels(decode(png, spec.background).rgb, spec)[None]


@pytest.fixture
def expected(pixels: NDArray[np.float32], tiny: Path) -> NDArray[np.float64]:
    answer: NDArray[np.float64] = probabilities(Runtime(open_bundle(tiny), threads=1).run(pixels))[0]
    return answer


def of_answer(response: httpx.Response) -> NDArray[np.float64]:
    assert response.status_code == 200, response.text
    found = response.json()["results"][0]["predictions"]
    return np.array([entry["probability"] for entry in sorted(found, key=lambda entry: entry["index"])])


@pytest.mark.parametrize("route", ["raw", "octet-stream", "form type", "multipart", "base64", "data uri"])
def test_the_peoples_face(http: httpx.Client, png: bytes, expected: NDArray[np.float64], route: str) -> None:
    text = base64.b64encode(png).decode()
    requests: dict[str, dict[str, Any]] = {
        "raw": {"content": png, "headers": {"content-type": "image/png"}},
        "octet-stream": {"content": png, "headers": {"content-type": "application/octet-stream"}},
        "form type": {"content": png, "headers": {"content-type": "application/x-www-form-urlencoded"}},
        "multipart": {"files": {"file": ("a.png", png, "text/plain")}},
        "base64": {"json": {"image": text}},
        "data uri": {"json": {"images": [f"data:image/jpeg;base64,{text}"]}},
    }
    answer = of_answer(http.post("/v1/classify", params={"top_k": 10}, **requests[route]))
    np.testing.assert_allclose(answer, expected, atol=TOLERANCE)


@pytest.mark.parametrize("nested", [True, False])
def test_v2_json_tensors(
    http: httpx.Client, pixels: NDArray[np.float32], expected: NDArray[np.float64], nested: bool
) -> None:
    data = pixels.tolist() if nested else pixels.reshape(-1).tolist()
    body = {"id": "7", "inputs": [{"name": "pixels", "shape": list(pixels.shape), "datatype": "FP32", "data": data}]}
    answer = http.post("/v2/models/tiny/infer", json=body).json()
    assert answer["id"] == "7"
    assert answer["outputs"][0]["shape"] == [1, 10]
    logits = np.array(answer["outputs"][0]["data"], dtype=np.float32).reshape(1, 10)
    np.testing.assert_allclose(probabilities(logits)[0], expected, atol=TOLERANCE)


def test_v2_encoded_pictures_as_json(http: httpx.Client, png: bytes, expected: NDArray[np.float64]) -> None:
    text = base64.b64encode(png).decode()
    body = {
        "inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [text]}],
        "outputs": [{"name": "probabilities"}],
    }
    answer = http.post("/v2/models/tiny/versions/1/infer", json=body).json()
    np.testing.assert_allclose(answer["outputs"][0]["data"], expected, atol=TOLERANCE)


def test_v2_encoded_pictures_as_binary(http: httpx.Client, png: bytes, expected: NDArray[np.float64]) -> None:
    tail = struct.pack("<I", len(png)) + png
    head = json.dumps(
        {
            "inputs": [
                {"name": "image", "shape": [2, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 2 * len(tail)}}
            ],
            "outputs": [{"name": "probabilities", "parameters": {"binary_data": True}}],
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    response = http.post("/v2/models/tiny/infer", content=head + tail + tail, headers=headers)
    assert response.headers["content-type"] == "application/octet-stream"
    size = int(response.headers["Inference-Header-Content-Length"])
    assert json.loads(response.content[:size])["outputs"][0]["parameters"] == {"binary_data_size": 80}
    found = np.frombuffer(response.content[size:], "<f4").reshape(2, 10)
    np.testing.assert_allclose(found, [expected, expected], atol=TOLERANCE)


def test_large_json_answers_are_compressed_only_when_asked(http: httpx.Client, pixels: NDArray[np.float32]) -> None:
    rows = np.repeat(pixels, 64, axis=0)
    body = {"inputs": [{"name": "pixels", "shape": list(rows.shape), "datatype": "FP32", "data": rows.reshape(-1).tolist()}]}
    plain = http.post("/v2/models/tiny/infer", json=body, headers={"accept-encoding": "identity"})
    packed = http.post("/v2/models/tiny/infer", json=body, headers={"accept-encoding": "gzip"})
    refused = http.post("/v2/models/tiny/infer", json=body, headers={"accept-encoding": "gzip;q=0, deflate;q=0.5"})
    assert "content-encoding" not in plain.headers
    assert refused.headers["content-encoding"] == "deflate"
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.json()["outputs"] == packed.json()["outputs"]
