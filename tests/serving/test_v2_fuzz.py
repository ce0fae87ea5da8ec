"""Tensors as nobody sends them on purpose: the answer is the model's, to the numbers that were sent, or a 4xx in our form.

What was sent is read a second time here, by numpy and json alone, in the plainest way.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaussport.export.bundle.store import open_bundle
from gaussport.serving.runtime import Runtime

URL = "/v2/models/tiny/infer"
SHAPE = (3, 8, 8)
ROW = 3 * 8 * 8
HEAD = "Inference-Header-Content-Length"
SEARCH = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def model(tiny: Path) -> Runtime:
    return Runtime(open_bundle(tiny), threads=1)


ODD_NUMBERS = [0, -1, 1, 2, 767, 768, 769, 2**31, 2**32, 2**53, 2**63, 2**64, 10**30, -(2**63), 1.5, -0.0, 1e300]
scalars = st.one_of(
    st.sampled_from(ODD_NUMBERS), st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
shapes = st.one_of(
    st.tuples(st.integers(0, 3), *(st.just(side) for side in SHAPE)).map(list),
    st.lists(st.one_of(st.integers(0, 8), st.sampled_from(ODD_NUMBERS)), max_size=6),
    anything,
)
parameters = st.dictionaries(
    st.sampled_from(["binary_data_size", "binary_data", "classification", "timeout", "priority", "binary_data_output"]),
    anything,
    max_size=2,
)
floats = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1e-45, 3.4e38, float("nan"), float("inf")]))


@st.composite
def binary_requests(draw: st.DrawFn) -> tuple[bytes, dict[str, str]]:
    """A right binary request of one or two rows, with some of its parts replaced by wrong ones."""
    rows = draw(st.integers(1, 2))
    values = np.zeros(rows * ROW, "<f4")
    values[draw(st.integers(0, len(values) - 1))] = draw(floats)
    tail = values.tobytes()
    tensor: dict[str, Any] = {"name": "pixels", "shape": [rows, *SHAPE], "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": len(tail)}
    head: dict[str, Any] = {"inputs": [tensor]}
    for part in draw(st.sets(st.sampled_from(list(_WRONG)), max_size=2)):
        tail = _WRONG[part](draw, head, tensor, tail)
    text = json.dumps(head).encode()
    size = draw(mostly(len(text), st.integers(-2, len(text) + len(tail) + 2)))
    return text + tail, {HEAD: str(size)}


def mostly(right: Any, wrong: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The right value three times of four, so that what is wrong beside it is reached."""
    return st.integers(0, 3).flatmap(lambda chance: wrong if chance == 0 else st.just(right))


def _replace(key: str, values: st.SearchStrategy[Any]) -> Any:
    def wrong(draw: st.DrawFn, head: dict[str, Any], tensor: dict[str, Any], tail: bytes) -> bytes:
        tensor[key] = draw(values)
        return tail

    return wrong


def _head(draw: st.DrawFn, head: dict[str, Any], tensor: dict[str, Any], tail: bytes) -> bytes:
    key = draw(st.sampled_from(["id", "parameters", "outputs", "inputs"]))
    head[key] = draw(st.one_of(anything, parameters, st.lists(st.dictionaries(st.just("name"), anything))))
    return tail


def _another_input(draw: st.DrawFn, head: dict[str, Any], tensor: dict[str, Any], tail: bytes) -> bytes:
    if isinstance(head["inputs"], list):
        head["inputs"] = head["inputs"] + [draw(st.one_of(st.just(tensor), anything))]
    return tail


def _tail(draw: st.DrawFn, head: dict[str, Any], tensor: dict[str, Any], tail: bytes) -> bytes:
    return draw(st.one_of(st.binary(max_size=9).map(lambda more: tail + more), st.integers(0, 9).map(lambda n: tail[n:])))


_WRONG = {
    "name": _replace("name", st.one_of(st.sampled_from(["image", "PIXELS", ""]), anything)),
    "shape": _replace("shape", shapes),
    "datatype": _replace("datatype", st.one_of(st.sampled_from(["FP64", "BYTES", "fp32", ""]), anything)),
    "parameters": _replace("parameters", st.one_of(parameters, anything)),
    "size": _replace("parameters", scalars.map(lambda size: {"binary_data_size": size})),
    "data": _replace("data", anything),
    "head": _head,
    "another": _another_input,
    "tail": _tail,
}


def sent(content: bytes, headers: dict[str, str]) -> NDArray[np.float32]:
    """The rows that an accepted request of pixels must have meant."""
    size = headers.get(HEAD)
    if size == "0":
        return np.frombuffer(content, "<f4").reshape(1, *SHAPE)
    cut = len(content) if size is None else int(size)
    (tensor,) = json.loads(content[:cut])["inputs"]
    assert (tensor["name"], tensor["datatype"]) == ("pixels", "FP32")
    if tensor.get("data") is not None:
        assert np.array(tensor["data"]).size == ROW * tensor["shape"][0]
        return np.array(tensor["data"], np.float64).astype(np.float32).reshape(tensor["shape"])
    assert tensor["parameters"]["binary_data_size"] == len(content) - cut
    return np.frombuffer(content[cut:], "<f4").reshape(tensor["shape"])


def check(fuzzed: Any, model: Runtime, content: bytes, headers: dict[str, str]) -> None:
    response = fuzzed.post(URL, content, headers)
    if response.status_code == 504:
        assert json.loads(content[: int(headers.get(HEAD, len(content)))])["parameters"]["timeout"] > 0
        return
    if response.status_code != 200:
        fuzzed.check_refusal(response)
        return
    rows = sent(content, headers)
    assert np.isfinite(rows).all()
    body = response.content[: int(response.headers.get(HEAD, len(response.content)))]
    for output in json.loads(body)["outputs"]:
        assert output["shape"][0] == len(rows)
        if output["name"] == "logits" and output["datatype"] == "FP32" and "data" in output:
            found = np.array(output["data"], np.float32).reshape(output["shape"])
            np.testing.assert_allclose(found, model.run(rows), rtol=1e-4, atol=1e-4)


@settings(SEARCH, max_examples=150)
@given(request=binary_requests())
def test_binary_tensors(fuzzed: Any, model: Runtime, request: tuple[bytes, dict[str, str]]) -> None:
    check(fuzzed, model, *request)


@settings(SEARCH, max_examples=60)
@given(content=st.binary(max_size=80), size=st.one_of(st.none(), st.integers(-1, 90).map(str), st.text("0123456789-+. xe")))
@example(content=b"{}", size="9" * 5000)
@example(content=b"{}", size="+2")
@example(content=b"{}", size=" 2")
@example(content=b"{}", size="0_2")
def test_any_bytes(fuzzed: Any, model: Runtime, content: bytes, size: str | None) -> None:
    check(fuzzed, model, content, {} if size is None else {HEAD: size})


numbers = st.one_of(st.floats(-1e38, 1e38), st.integers(-(2**53), 2**53), scalars)


@st.composite
def json_requests(draw: st.DrawFn) -> bytes:
    """JSON tensors with one number, or the nesting, replaced; and now and then any JSON at all."""
    data: Any = [0.5] * ROW
    data[draw(st.integers(0, ROW - 1))] = draw(numbers)
    form = draw(st.sampled_from(["flat", "flat", "nested", "nested", "partly", "any"]))
    if form == "nested":
        data = [[data[64 * c + 8 * y : 64 * c + 8 * y + 8] for y in range(8)] for c in range(3)]
        data = [data] if draw(st.booleans()) else data
    elif form == "partly":
        data = [data[:96], data[96:]]
    elif form == "any":
        data = draw(anything)
    tensor = {"name": "pixels", "shape": draw(mostly([1, *SHAPE], shapes)), "datatype": "FP32", "data": data}
    return json.dumps({"inputs": [tensor], "parameters": draw(mostly({}, parameters))}).encode()


@settings(SEARCH, max_examples=80)
@given(content=json_requests())
def test_json_tensors(fuzzed: Any, model: Runtime, content: bytes) -> None:
    check(fuzzed, model, content, {})


@settings(SEARCH, max_examples=25)
@given(depth=st.integers(1, 60_000), opening=st.sampled_from(["[", '{"a":', '[{"inputs":[']), closed=st.booleans())
def test_deep_json(fuzzed: Any, depth: int, opening: str, closed: bool) -> None:
    closing = {"[": "]", '{"a":': "}", '[{"inputs":[': "]}]"}[opening]
    text = opening * depth + "1" + (closing * depth if closed else "")
    for content in (text, f'{{"inputs":{text}}}', f'{{"inputs":[{{"name":"pixels","shape":{text},"datatype":"FP32"}}]}}'):
        fuzzed.check_refusal(fuzzed.post(URL, content.encode()[:900_000]))


@st.composite
def pictures_in_bytes(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """A BYTES tensor: elements whose length prefixes may lie; how many it announces, and how many bytes."""
    elements = draw(st.lists(mostly(PNG, st.one_of(st.binary(max_size=40), st.just(PNG[:30]))), min_size=1, max_size=3))
    raw = b""
    lies = st.one_of(st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1]), st.integers(0, 100))
    for element in elements:
        raw += draw(mostly(len(element), lies)).to_bytes(4, "little") + element
    raw += draw(mostly(b"", st.binary(max_size=5)))
    return raw, draw(mostly(len(elements), st.integers(0, 40))), draw(mostly(0, st.sampled_from([-1, 1])))


PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mM4UaEBAAN0AWn1BwN7AAAAAElFTkSuQmCC")


@settings(SEARCH, max_examples=80)
@given(request=pictures_in_bytes())
@example(request=((len(PNG).to_bytes(4, "little") + PNG) * 2, 2, 0))
def test_pictures_with_lying_lengths(fuzzed: Any, request: tuple[bytes, int, int]) -> None:
    raw, count, off = request
    tensor = {"name": "image", "shape": [count], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw) + off}}
    head = json.dumps({"inputs": [tensor]}).encode()
    response = fuzzed.post(URL, head + raw, {HEAD: str(len(head))})
    if response.status_code != 200:
        fuzzed.check_refusal(response)
        return
    assert off == 0
    assert raw == (len(PNG).to_bytes(4, "little") + PNG) * count  # nothing else is a whole picture
    assert response.json()["outputs"][0]["shape"] == [count, 10]


@settings(SEARCH, max_examples=60)
@given(
    texts=st.lists(mostly(base64.b64encode(PNG).decode(), st.one_of(anything, st.text(max_size=12))), max_size=3),
    data=st.data(),
)
def test_pictures_in_json(fuzzed: Any, texts: list[Any], data: st.DataObject) -> None:
    shape = data.draw(mostly([len(texts)], st.one_of(st.just([len(texts), 1]), shapes)))
    tensor = {"name": "image", "shape": shape, "datatype": "BYTES", "data": texts}
    response = fuzzed.post(URL, json.dumps({"inputs": [tensor]}).encode())
    if response.status_code != 200:
        fuzzed.check_refusal(response)
        return
    assert shape[0] == len(texts) == response.json()["outputs"][0]["shape"][0]
