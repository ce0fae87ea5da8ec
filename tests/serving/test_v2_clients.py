"""Clients of other projects, every call of theirs, against a real server: Triton's, KServe's, the protocol's own.

The oracle is the bundle's model run without a server.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from gaussport.export.bundle.store import open_bundle
from gaussport.serving.runtime import Runtime

triton = pytest.importorskip("tritonclient.http")
Rows = NDArray[np.float32]

pytestmark = pytest.mark.filterwarnings("ignore")  # of gevent and of old pydantic, which these clients bring

TOLERANCE = 1e-5  # batches differ in size, and with it the order of float32 sums


@pytest.fixture(scope="module")
def rows() -> Rows:
    return np.random.default_rng(11).normal(size=(5, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def logits(rows: Rows, tiny: Path) -> Rows:
    return Runtime(open_bundle(tiny), threads=1).run(rows)


@pytest.fixture
def client(server: Any) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4) as found:
        yield found


def tensor_of(rows: Rows, binary: bool = True) -> Any:
    tensor = triton.InferInput("pixels", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    return tensor


def test_triton_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert client.is_model_ready("tiny", "1")
    assert not client.is_model_ready("tiny", "2")
    assert not client.is_model_ready("nobody")
    server = client.get_server_metadata()
    assert server["name"] == "gaussport"
    assert {"binary_tensor_data", "classification", "statistics", "model_repository"} <= set(server["extensions"])
    metadata = client.get_model_metadata("tiny")
    assert metadata["inputs"] == [{"name": "pixels", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]
    assert metadata["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}]
    assert metadata["versions"] == ["1"]
    assert client.get_model_metadata("tiny", "1") == metadata


def test_triton_config_is_what_nvidias_image_client_wants(client: Any) -> None:
    config = client.get_model_config("tiny")
    (given,), (answered,) = config["input"], config["output"]  # it refuses any other number of them
    assert config["max_batch_size"] == 16
    assert (given["format"], given["data_type"], given["dims"]) == ("FORMAT_NCHW", "TYPE_FP32", [3, 8, 8])
    assert answered["dims"] == [10]
    assert config["parameters"]["unlisted_input"]["string_value"] == "image BYTES [-1]"
    assert client.get_model_config("tiny", "1") == config


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_triton_infer(client: Any, rows: Rows, logits: Rows, binary: bool, compression: str | None) -> None:
    result = client.infer(
        "tiny",
        [tensor_of(rows, binary)],
        model_version="1",
        request_id="mine",
        priority=1,
        timeout=10_000_000,
        outputs=[triton.InferRequestedOutput("logits", binary_data=binary)],
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    np.testing.assert_allclose(result.as_numpy("logits"), logits, TOLERANCE, TOLERANCE)
    assert result.get_response()["id"] == "mine"
    assert result.get_output("logits")["shape"] == [5, 10]


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_triton_large_answers_are_compressed(client: Any, rows: Rows, logits: Rows, compression: str | None) -> None:
    many = np.tile(rows, (40, 1, 1, 1))  # 200 rows: more than a batch, and an answer of more than 4 kB
    result = client.infer("tiny", [tensor_of(many)], response_compression_algorithm=compression)
    np.testing.assert_allclose(result.as_numpy("logits"), np.tile(logits, (40, 1)), TOLERANCE, TOLERANCE)


def test_triton_async_infer(client: Any, rows: Rows, logits: Rows) -> None:
    waiting = [client.async_infer("tiny", [tensor_of(row[None])], request_id=str(index)) for index, row in enumerate(rows)]
    for index, request in enumerate(waiting):
        result = request.get_result(timeout=20)
        assert result.get_response()["id"] == str(index)
        np.testing.assert_allclose(result.as_numpy("logits")[0], logits[index], TOLERANCE, TOLERANCE)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("count", [1, 3, 99])
def test_triton_class_count(client: Any, rows: Rows, logits: Rows, count: int, binary: bool) -> None:
    wanted = triton.InferRequestedOutput("logits", binary_data=binary, class_count=count)
    found = client.infer("tiny", [tensor_of(rows)], outputs=[wanted]).as_numpy("logits")
    assert found.shape == (5, min(count, 10))
    for row, expected in zip(found, logits, strict=True):
        texts = [text.decode() if isinstance(text, bytes) else text for text in row]
        scores, indices, labels = zip(*(text.split(":") for text in texts), strict=True)
        order = np.argsort(-expected)[:count]
        assert [int(index) for index in indices] == order.tolist()
        assert list(labels) == [f"label{index}" for index in order]
        np.testing.assert_allclose([float(score) for score in scores], expected[order], atol=1e-4)


def test_triton_pictures(client: Any, encode: Callable[..., bytes], make_picture: Callable[..., Any], http: Any) -> None:
    pictures = [encode(make_picture(seed)) for seed in range(3)]
    tensor = triton.InferInput("image", [3], "BYTES")
    tensor.set_data_from_numpy(np.array(pictures, dtype=np.object_))
    found = client.infer("tiny", [tensor], outputs=[triton.InferRequestedOutput("probabilities")]).as_numpy("probabilities")
    for row, picture in zip(found, pictures, strict=True):
        answer = http.post("/v1/classify", params={"top_k": 10}, content=picture, headers={"content-type": "image/png"})
        for entry in answer.json()["results"][0]["predictions"]:
            assert row[entry["index"]] == pytest.approx(entry["probability"], abs=1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_triton_bodies_sent_by_another_http_library(http: Any, rows: Rows, logits: Rows, binary: bool) -> None:
    make, parse = (
        triton.InferenceServerClient.generate_request_body,
        triton.InferenceServerClient.parse_response_body,
    )
    wanted = [triton.InferRequestedOutput("logits", binary_data=binary)]
    body, size = make([tensor_of(rows, binary)], outputs=wanted, request_id="mine", parameters={"mine": "yes"})
    headers = {} if size is None else {"Inference-Header-Content-Length": str(size)}
    response = http.post("/v2/models/tiny/infer", content=body, headers=headers)
    length = response.headers.get("Inference-Header-Content-Length")
    result = parse(response.content, header_length=None if length is None else int(length))
    np.testing.assert_allclose(result.as_numpy("logits"), logits, TOLERANCE, TOLERANCE)


def test_triton_statistics(client: Any, rows: Rows) -> None:
    def images() -> int:
        (found,) = client.get_inference_statistics("tiny", "1")["model_stats"]
        return int(found["inference_count"])

    before = images()
    client.infer("tiny", [tensor_of(rows)])
    assert images() == before + 5
    assert client.get_inference_statistics()["model_stats"] == client.get_inference_statistics("tiny")["model_stats"]


def test_triton_repository(run_server: Callable[..., Any], tiny: Path, tmp_path: Path, rows: Rows) -> None:
    shutil.copytree(tiny, tmp_path / "one/1")
    with (
        run_server(tmp_path, options=("--allow-load",)) as server,
        triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client,
    ):
        assert [(entry["name"], entry["state"]) for entry in client.get_model_repository_index()] == [("one", "READY")]
        client.unload_model("one", unload_dependents=True)
        assert not client.is_model_ready("one")
        shutil.copytree(tiny, tmp_path / "two/3")
        client.load_model("two")
        client.load_model("one")
        for model in ("one", "two"):
            assert client.infer(model, [tensor_of(rows)]).as_numpy("logits").shape == (5, 10)
        with pytest.raises(triton.InferenceServerException, match="as it lies on disk"):
            client.load_model("one", config='{"max_batch_size": 2}')


def test_triton_hears_every_refusal_in_words(client: Any, rows: Rows) -> None:
    for ask, words in (
        (lambda: client.infer("nobody", [tensor_of(rows)]), "no model of that name"),
        (lambda: client.infer("tiny", [tensor_of(rows)], model_version="7"), "no such version"),
        (lambda: client.infer("tiny", [tensor_of(rows[:, :, :4])]), "must have the shape"),
        (lambda: client.infer("tiny", [tensor_of(rows * np.nan)]), "not finite"),
        (lambda: client.infer("tiny", [tensor_of(rows)], outputs=[triton.InferRequestedOutput("x")]), "no such output"),
        (lambda: client.load_model("tiny"), "--allow-load"),
        (lambda: client.unload_model("tiny"), "--allow-load"),
        (client.get_trace_settings, "no such path"),
        (client.get_log_settings, "no such path"),
        (client.get_system_shared_memory_status, "no such path"),
        (client.get_cuda_shared_memory_status, "no such path"),
    ):
        with pytest.raises(triton.InferenceServerException, match=words):
            ask()


def test_triton_asyncio_client(server: Any, rows: Rows, logits: Rows) -> None:
    aio = pytest.importorskip("tritonclient.http.aio")

    async def ask() -> list[Rows]:
        async with aio.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            assert await client.is_server_ready()
            assert await client.is_model_ready("tiny")
            assert (await client.get_model_config("tiny"))["max_batch_size"] == 16
            assert len(await client.get_model_repository_index()) == 1
            work = (client.infer("tiny", [tensor_of(row[None])], request_compression_algorithm="gzip") for row in rows)
            return [result.as_numpy("logits") for result in await asyncio.gather(*work)]

    np.testing.assert_allclose(np.concatenate(asyncio.run(ask())), logits, TOLERANCE, TOLERANCE)


@pytest.fixture(scope="module")
def protocol() -> Any:
    return pytest.importorskip("open_inference.openapi.client")


def test_open_inference_openapi(server: Any, http: httpx.Client, rows: Rows, logits: Rows, protocol: Any) -> None:
    errors = importlib.import_module("open_inference.openapi.errors")
    client = protocol.OpenInferenceClient(base_url=server.url, httpx_client=http)
    client.check_server_liveness()
    client.check_server_readiness()
    client.check_model_readiness("tiny")
    client.check_model_version_readiness("tiny", "1")
    assert client.read_server_metadata().name == "gaussport"
    assert client.read_model_metadata("tiny").inputs[0].shape == [-1, 3, 8, 8]
    assert client.read_model_version_metadata("tiny", "1").outputs[0].datatype == "FP32"
    tensor = {"name": "pixels", "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    request = protocol.InferenceRequest(id="mine", inputs=[tensor])
    for answer in (
        client.model_infer("tiny", request=request),
        client.model_version_infer("tiny", "1", request=request),
    ):
        assert answer.id == "mine"
        found = np.array(answer.outputs[0].data.__root__, np.float32).reshape(answer.outputs[0].shape)
        np.testing.assert_allclose(found, logits, TOLERANCE, TOLERANCE)
    with pytest.raises(errors.BadRequestError):
        client.model_infer("tiny", request=protocol.InferenceRequest(inputs=[]))
    with pytest.raises(errors.NotFoundError):
        client.check_model_readiness("nobody")
    with pytest.raises(errors.NotFoundError):
        client.check_model_version_readiness("tiny", "7")


def test_open_inference_openapi_async(server: Any, rows: Rows, logits: Rows, protocol: Any) -> None:
    async def ask() -> Any:
        tensor = {"name": "pixels", "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
        request = protocol.InferenceRequest(inputs=[tensor], outputs=None, id=None)
        async with httpx.AsyncClient(trust_env=False) as http:
            client = protocol.AsyncOpenInferenceClient(base_url=server.url, httpx_client=http)
            await client.check_server_readiness()
            return await client.model_infer("tiny", request=request)

    output = asyncio.run(ask()).outputs[0]
    np.testing.assert_allclose(np.array(output.data.__root__).reshape(output.shape), logits, TOLERANCE, TOLERANCE)


def kserve_python() -> str:
    """A Python that has kserve: this one, or the one that GAUSSPORT_KSERVE_PYTHON names."""
    named = os.environ.get("GAUSSPORT_KSERVE_PYTHON")
    if named is None and importlib.util.find_spec("kserve") is None:
        pytest.skip("kserve is not installed; set GAUSSPORT_KSERVE_PYTHON to a Python that has it")
    return named or sys.executable


def test_kserve(server: Any, rows: Rows, logits: Rows, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", rows)
    script = Path(__file__).with_name("kserve_client.py")
    command = [kserve_python(), str(script), server.url, "tiny", str(tmp_path / "rows.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [found[key] for key in ("live", "ready", "model_ready", "other_ready")] == [True, True, True, False]
    assert (found["json_id"], found["binary_id"]) == ("mine", "mine")
    for way in ("json", "binary", "dict"):
        np.testing.assert_allclose(np.array(found[way], np.float32).reshape(5, 10), logits, TOLERANCE, TOLERANCE)
    assert '"inputs" is empty' in found["error"]
