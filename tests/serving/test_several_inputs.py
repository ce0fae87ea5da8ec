"""A model that reads a vector, an index and a mask beside its pictures, over the protocol and where only pictures go."""

import base64
import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from numpy.typing import NDArray

from gaussport.cli import main
from gaussport.export.bundle.store import open_bundle, writing_bundle
from gaussport.models.image.preprocess import to_pixels
from gaussport.serving import runtime
from gaussport.serving.batch_buffer import BatchBuffer
from gaussport.serving.binding import Graphed, Staged
from gaussport.serving.rows import inputs_of, packed
from gaussport.serving.runtime import Runtime
from tests.serving.conftest import Server, encoded, picture, running
from tests.serving.several import PICTURES, SPECS, expected, random_inputs, write_several

DATATYPES = {"pixels": "FP32", "metadata": "FP32", "kind": "INT64", "keep": "BOOL"}
URL = "/v2/models/several/infer"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_several(tmp_path_factory.mktemp("bundles") / "several")


@pytest.fixture(scope="module")
def served(several: Path) -> Iterator[Server]:
    with running(several, options=("--max-delay-ms", "5")) as server:
        yield server


@pytest.fixture(scope="module")
def http(served: Server) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def request(inputs: dict[str, NDArray[Any]]) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": name, "shape": list(array.shape), "datatype": DATATYPES[name], "data": array.tolist()}
            for name, array in inputs.items()
        ]
    }


def logits(response: httpx.Response) -> NDArray[np.float64]:
    assert response.status_code == 200, response.text
    output = response.json()["outputs"][0]
    return np.array(output["data"]).reshape(output["shape"])


def test_metadata_and_configuration_list_every_input(http: httpx.Client) -> None:
    assert http.get("/v2/models/several").json()["inputs"] == [
        {"name": "pixels", "datatype": "FP32", "shape": [-1, 3, 4, 4]},
        {"name": "metadata", "datatype": "FP32", "shape": [-1, 2, 2]},
        {"name": "kind", "datatype": "INT64", "shape": [-1]},
        {"name": "keep", "datatype": "BOOL", "shape": [-1, 1]},
    ]
    config = http.get("/v2/models/several/config").json()["input"]
    assert [(entry["name"], entry["data_type"], entry["dims"]) for entry in config] == [
        ("pixels", "TYPE_FP32", [3, 4, 4]),
        ("metadata", "TYPE_FP32", [2, 2]),
        ("kind", "TYPE_INT64", []),
        ("keep", "TYPE_BOOL", [1]),
    ]
    (model,) = http.get("/v1/models").json()["models"]
    assert model["further_inputs"][1] == {"name": "kind", "dtype": "int64", "shape": ["batch"], "low": 1, "high": 6}


def test_json_in_any_order(http: httpx.Client) -> None:
    inputs = random_inputs(3, seed=1)
    np.testing.assert_allclose(logits(http.post(URL, json=request(inputs))), expected(inputs), atol=1e-5)
    turned = request(dict(reversed(inputs.items())))
    np.testing.assert_allclose(logits(http.post(URL, json=turned)), expected(inputs), atol=1e-5)


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_own_client(served: Server, binary: bool) -> None:
    inputs = random_inputs(8, seed=2)
    client = triton.InferenceServerClient(served.url.removeprefix("http://"))
    tensors = []
    for name, array in inputs.items():
        tensors.append(triton.InferInput(name, list(array.shape), DATATYPES[name]))
        tensors[-1].set_data_from_numpy(array, binary_data=binary)
    found = client.infer("several", tensors).as_numpy("logits")
    client.close()
    np.testing.assert_allclose(found, expected(inputs), atol=1e-5)


def test_an_encoded_picture_beside_tensors(http: httpx.Client) -> None:
    pictures = [picture(5), picture(6)]
    inputs = random_inputs(2, seed=3) | {"pixels": np.stack([to_pixels(image, PICTURES) for image in pictures])}
    body = request({name: array for name, array in inputs.items() if name != "pixels"})
    data = [base64.b64encode(encoded(image)).decode() for image in pictures]
    body["inputs"].append({"name": "image", "shape": [2], "datatype": "BYTES", "data": data})
    np.testing.assert_allclose(logits(http.post(URL, json=body)), expected(inputs), atol=1e-5)


def test_rows_of_many_requests_in_one_batch_stay_together(http: httpx.Client) -> None:
    asked = [random_inputs(1 + seed % 5, seed) for seed in range(40)]
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda inputs: http.post(URL, json=request(inputs)), asked))
    for inputs, answer in zip(asked, answers, strict=True):
        np.testing.assert_allclose(logits(answer), expected(inputs), atol=1e-5)


def test_a_column_is_taken_for_one_number_a_row(http: httpx.Client) -> None:
    inputs = random_inputs(2, seed=4)
    column = request(inputs | {"kind": inputs["kind"][:, np.newaxis]})
    np.testing.assert_allclose(logits(http.post(URL, json=column)), expected(inputs), atol=1e-5)


def changed(name: str, /, **entries: Any) -> dict[str, Any]:
    body = request(random_inputs(2, seed=0))
    next(entry for entry in body["inputs"] if entry["name"] == name).update(entries)
    return body


def without(name: str) -> dict[str, Any]:
    body = request(random_inputs(2, seed=0))
    return {"inputs": [entry for entry in body["inputs"] if entry["name"] != name]}


def twice(name: str) -> dict[str, Any]:
    body = request(random_inputs(2, seed=0))
    return {"inputs": [*body["inputs"], *(copy.deepcopy(e) for e in body["inputs"] if e["name"] == name)]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (without("kind"), "several also needs kind: send all inputs in one request"),
        (without("pixels"), "several also needs pixels or image: send all"),
        (twice("kind"), "two inputs of the request have the same name"),
        (changed("kind", name="sort"), "no such input: send pixels or image, metadata, kind, keep"),
        (changed("kind", data=[1, 7]), "kind must be from 1 to 6"),
        (changed("kind", data=[0, 1]), "kind must be from 1 to 6"),
        (changed("kind", data=[1, 2**63]), "kind has a number beyond 64 bits"),
        (changed("kind", data=[1.0, 2.0]), "the data of kind must be 2 times whole numbers"),
        (changed("kind", data=[True, 2]), "the data of kind must be 2 times whole numbers"),
        (changed("kind", data=[1]), "the data of kind must be 2 times whole numbers"),
        (changed("kind", datatype="INT32"), "kind must be INT64"),
        (changed("kind", shape=[2, 2]), r"kind must have the shape [N]"),
        (changed("kind", shape=[1], data=[1]), "pixels has 2 rows and kind 1: send one row of each for every picture"),
        (changed("kind", shape=[0], data=[]), "kind has no rows"),
        (changed("keep", data=[[2], [1]]), "keep must be from 0 to 1"),
        (changed("keep", data=[["a"], [1]]), "the data of keep must be 2 times true or false"),
        (changed("metadata", data=[1e39] * 8), "metadata has numbers that are not finite"),
        (changed("metadata", data=[1.0] * 7), "the data of metadata must be 8 numbers"),
        (changed("metadata", shape=[2, 4]), "metadata must have the shape [N, 2, 2]"),
    ],
)
def test_what_is_refused(body: dict[str, Any], words: str, http: httpx.Client) -> None:
    response = http.post(URL, json=body)
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]


def test_a_bare_row_is_refused(http: httpx.Client) -> None:
    response = http.post(URL, content=bytes(192), headers={"Inference-Header-Content-Length": "0"})
    assert response.status_code == 400
    assert "several also needs metadata, kind, keep" in response.json()["error"]


@pytest.mark.parametrize("binary", [b"\x02\x00", b"\x00", b"\x01\x01\x01"])
def test_binary_truths_are_zero_or_one_for_each_row(binary: bytes, http: httpx.Client) -> None:
    body = changed("keep", data=None, parameters={"binary_data_size": len(binary)})
    head = httpx.Request("POST", "http://x", json=body).content
    headers = {"Inference-Header-Content-Length": str(len(head))}
    response = http.post(URL, content=head + binary, headers=headers)
    assert response.status_code == 400
    assert response.json()["code"] == "malformed_tensor"


def test_pictures_alone_are_told_where_to_go(http: httpx.Client, several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "several, which also reads metadata, kind, keep: send every input in one request to /v2/models/several/infer"
    response = http.post("/v1/classify", content=encoded(picture(1)), headers={"Content-Type": "image/png"})
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")
    assert words in response.json()["error"]
    assert main(["classify", str(several), str(several / "bundle.json")]) == 1
    assert words in capsys.readouterr().err


# Inside


@pytest.mark.parametrize("pieces", [[3], [1, 2], [2, 2, 1]])
def test_records_are_joined_and_padded_like_pictures(pieces: list[int]) -> None:
    parts = [random_inputs(rows, seed) for seed, rows in enumerate(pieces)]
    buffer = BatchBuffer((4, 8))
    buffer.gather([packed(random_inputs(8, 99))], 8)
    rows = buffer.gather([packed(part) for part in parts], sum(pieces))
    found = inputs_of(rows, "pixels")
    assert list(found) == ["pixels", *SPECS]
    for name, array in found.items():
        whole = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(array[: sum(pieces)], whole)
        assert not array[sum(pieces) :].any()


@pytest.mark.parametrize("binding", [Staged, Graphed])
def test_bindings_of_gpus_feed_every_input(binding: type[Any], several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bound(opened: Any, bundle: Any, _: Any) -> Any:
        more = () if binding is Staged else ([5], ("cpu", 0))
        return binding(opened.session, bundle.manifest.output.name, *more)

    monkeypatch.setattr(runtime, "_binding", bound)
    running_here = Runtime(open_bundle(several), threads=1)
    for rows in (3, 8, 3, 1):
        inputs = random_inputs(rows, seed=rows)
        np.testing.assert_allclose(running_here.run(packed(inputs)), expected(inputs), atol=1e-5)


def test_a_graph_with_other_inputs_than_stated_does_not_start(several: Path, tmp_path: Path) -> None:
    bundle = open_bundle(several)
    with writing_bundle(tmp_path / "b") as draft:
        (draft.folder / "model.onnx").write_bytes(bundle.read("model.onnx"))
        fewer = bundle.manifest.model_copy(update={"further_inputs": bundle.manifest.further_inputs[:1]})
        draft.finish(lambda files: fewer.model_copy(update={"files": files}))
    with pytest.raises(Exception, match=r"wants 4 inputs in the graph and 2 in bundle\.json"):
        Runtime(open_bundle(tmp_path / "b"), threads=1)
