"""Odd, lying and hostile tensors are 400 with our words, never a 500, and never numbers that nobody sent."""

import base64
import json
from typing import Any

import httpx
import numpy as np
import pytest

SHAPE = [1, 3, 8, 8]
COUNT = 192
GOOD = [0.5] * COUNT
URL = "/v2/models/tiny/infer"


def pixels(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "pixels", "shape": SHAPE, "datatype": "FP32", "data": GOOD} | changes]}


def refused(response: httpx.Response, *codes: str) -> None:
    content = response.json()
    assert response.status_code == 400, response.text
    assert content["code"] in codes
    assert isinstance(content["error"], str)
    assert len(content["error"]) < 300


def text_with(number: str) -> bytes:
    """A request whose first number is written as given, standard JSON or not."""
    return json.dumps(pixels()).replace("0.5", number, 1).encode()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "01", "1e", "0x10", "[" * 100_000])
def test_what_is_not_json_is_refused(http: httpx.Client, number: str) -> None:
    refused(http.post(URL, content=text_with(number)), "malformed_json")


@pytest.mark.parametrize("number", ["1e39", "-1e39", "1e308"])
def test_numbers_beyond_float32_are_refused(http: httpx.Client, number: str) -> None:
    refused(http.post(URL, content=text_with(number)), "not_finite")


@pytest.mark.parametrize("number", ["1e400", "9" * 5000, "1" * 30 + "e30"])
def test_numbers_beyond_float64_are_refused(http: httpx.Client, number: str) -> None:
    refused(http.post(URL, content=text_with(number)), "not_finite", "malformed_json")


@pytest.mark.parametrize("number", ['"nan"', '"0.5"', "true", "false", "null", "{}", "[0.5]", "[]"])
def test_what_is_not_a_number_is_refused(http: httpx.Client, number: str) -> None:
    refused(http.post(URL, content=text_with(number)), "malformed_tensor")


@pytest.mark.parametrize(
    "data",
    [
        [],
        GOOD[:-1],
        [*GOOD, 0.5],
        [GOOD],
        [[GOOD]],
        0.5,
        "x",
        {},
        [[[1, 2], [3]]],
        [[[[0.5] * 8] * 8] * 2 + [[[0.5] * 8] * 7]],
        [[[[0.5] * 8] * 8] * 2 + [[[0.5] * 8] * 7 + [[0.5] * 9]]],
        [[[[[0.5]] * 8] * 8] * 3],
    ],
)
def test_data_that_does_not_fill_the_shape_is_refused(http: httpx.Client, data: Any) -> None:
    refused(http.post(URL, json=pixels(data=data)), "malformed_tensor")


@pytest.mark.parametrize(
    "shape",
    [[3, 8, 8], [1, 3, 8, 9], [1, 8, 8, 3], [1, 192], [], [1, 3, 8, 8, 1], [2, 3, 8, 8], [0, 3, 8, 8]],
)
def test_a_shape_that_is_not_the_models_is_refused(http: httpx.Client, shape: list[int]) -> None:
    refused(http.post(URL, json=pixels(shape=shape)), "malformed_tensor")


@pytest.mark.parametrize("shape", [None, 5, "x", [-1, 3, 8, 8], [1.0, 3, 8, 8], [True, 3, 8, 8], [10**30, 3, 8, 8], [[1]]])
def test_a_shape_that_is_none_is_refused(http: httpx.Client, shape: Any) -> None:
    refused(http.post(URL, json=pixels(shape=shape)), "malformed_request")


def test_an_empty_batch_is_refused(http: httpx.Client) -> None:
    refused(http.post(URL, json=pixels(shape=[0, 3, 8, 8], data=[])), "malformed_tensor")


@pytest.mark.parametrize(
    "request_body",
    [
        {},
        {"inputs": []},
        {"inputs": {}},
        {"inputs": [1]},
        {"inputs": pixels()["inputs"] * 2},
        pixels(name=None),
        pixels(data=None),
        pixels(datatype=3),
        pixels(name="nobody"),
        pixels() | {"id": 7},
        pixels() | {"outputs": [{}]},
        pixels() | {"outputs": "logits"},
        pixels() | {"parameters": []},
        pixels(parameters={"binary_data_size": 4}),
    ],
)
def test_a_request_of_another_form_is_refused(http: httpx.Client, request_body: Any) -> None:
    refused(http.post(URL, json=request_body), "malformed_request")


@pytest.mark.parametrize("datatype", ["FP16", "FP64", "INT8", "BYTES", "", "x" * 5000])
def test_another_datatype_is_refused(http: httpx.Client, datatype: str) -> None:
    refused(http.post(URL, json=pixels(datatype=datatype)), "malformed_tensor")


@pytest.mark.parametrize(
    "parameters",
    [{"timeout": -1}, {"timeout": "1"}, {"timeout": 10**30}, {"priority": 1.5}, {"binary_data_output": 1}],
)
def test_bad_parameters_are_refused(http: httpx.Client, parameters: Any) -> None:
    refused(http.post(URL, json=pixels() | {"parameters": parameters}), "bad_parameter")


def test_unknown_names_are_404(http: httpx.Client) -> None:
    for path, body, code in (
        ("/v2/models/nobody/infer", pixels(), "unknown_model"),
        ("/v2/models/tiny/versions/2/infer", pixels(), "unknown_version"),
        (URL, pixels() | {"outputs": [{"name": "nothing"}]}, "unknown_output"),
    ):
        response = http.post(path, json=body)
        assert (response.status_code, response.json()["code"]) == (404, code)
    assert http.get("/v2/models/nobody").status_code == 404
    assert http.get("/v2/models/tiny/versions/9/ready").status_code == 404


def binary(raw: bytes, head: dict[str, Any] | None = None, length: str | None = None) -> dict[str, Any]:
    """A request with one binary tensor."""
    entry = {"name": "pixels", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": len(raw)}}
    text = json.dumps(head or {"inputs": [entry]}).encode()
    return {"content": text + raw, "headers": {"Inference-Header-Content-Length": length or str(len(text))}}


def test_finite_numbers_whose_sum_is_not_are_let_in(http: httpx.Client) -> None:
    values = np.full(COUNT, np.finfo(np.float32).max, dtype="<f4")
    values[::2] *= -1
    for row in (values, np.abs(values)):
        answer = http.post(URL, **binary(row.tobytes()))
        assert answer.status_code == 200 or "the model's answer is not finite" in answer.text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_binary_numbers_that_are_not_finite_are_refused(http: httpx.Client, value: float) -> None:
    values = np.full(COUNT, 0.5, "<f4")
    values[100] = value
    refused(http.post(URL, **binary(values.tobytes())), "not_finite")


@pytest.mark.parametrize("size", [0, 1, 767, 772])
def test_a_binary_tensor_of_another_size_is_refused(http: httpx.Client, size: int) -> None:
    refused(http.post(URL, **binary(b"\0" * size)), "malformed_tensor")


@pytest.mark.parametrize("length", ["00", "-1", "x", "1.5", "99999999", "9" * 400, "１"])
def test_a_lying_head_length_is_refused(http: httpx.Client, length: str) -> None:
    request = binary(b"\0" * 768)
    headers = {b"Inference-Header-Content-Length": length.encode()}
    refused(http.post(URL, content=request["content"], headers=headers), "malformed_request")


@pytest.mark.parametrize("announced", [769, 1 << 40])
def test_a_tensor_longer_than_the_body_is_refused(http: httpx.Client, announced: int) -> None:
    entry = {"name": "pixels", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": announced}}
    refused(http.post(URL, **binary(b"\0" * 768, {"inputs": [entry]})), "malformed_tensor")


def test_bytes_behind_the_last_tensor_are_refused(http: httpx.Client) -> None:
    entry = {"name": "pixels", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": 768}}
    refused(http.post(URL, **binary(b"\0" * 769, {"inputs": [entry]})), "malformed_tensor")


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff", b"\1\0\0\0", b"\0\0", b""])
def test_lying_bytes_elements_are_refused(http: httpx.Client, raw: bytes) -> None:
    entry = {"name": "image", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}}
    refused(http.post(URL, **binary(raw, {"inputs": [entry]})), "malformed_tensor")


@pytest.mark.parametrize(("picture", "code"), [(b"hello", "not_an_image"), (b"<svg/>", "unsupported_format")])
def test_a_broken_picture_is_refused_with_its_own_code(http: httpx.Client, picture: bytes, code: str) -> None:
    entry = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(picture).decode()]}
    response = http.post(URL, json={"inputs": [entry]})
    assert (response.status_code, response.json()["code"]) == (415, code)


@pytest.mark.parametrize("shape", [[0], [33], [1 << 19]])
def test_a_number_of_pictures_out_of_range_is_refused(http: httpx.Client, shape: list[int]) -> None:
    entry = {"name": "image", "shape": shape, "datatype": "BYTES", "data": []}
    refused(http.post(URL, json={"inputs": [entry]}), "too_many_images")


def test_a_batch_larger_than_the_queue_is_refused(http: httpx.Client) -> None:
    rows = np.zeros((257, 3, 8, 8), "<f4").tobytes()
    entry = {"name": "pixels", "shape": [257, 3, 8, 8], "datatype": "FP32", "parameters": {"binary_data_size": len(rows)}}
    refused(http.post(URL, **binary(rows, {"inputs": [entry]})), "too_many_images")


def test_pixels_that_overflow_the_model_are_refused_alone(http: httpx.Client) -> None:
    largest = float(np.finfo(np.float32).max)
    refused(http.post(URL, json=pixels(data=[largest] * COUNT)), "not_finite")
    assert http.post(URL, json=pixels()).status_code == 200
