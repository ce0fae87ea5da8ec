"""Statistics and the model repository: what they say is what happened, and who may not change anything is told so."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gaussport.serving.app import build_app
from gaussport.serving.settings import Settings
from gaussport.serving.v2 import inference


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for place in ("counted/1", "counted/2", "other/1"):
        shutil.copytree(tiny, folder / place)
    return folder


@pytest.fixture(scope="module")
def allowing(models_dir: Path, run_server: Callable[..., Any]) -> Iterator[httpx.Client]:
    """A client of a server of several models and versions that lets clients load and unload."""
    with run_server(models_dir, options=("--allow-load", "--versions", "0")) as server, server.http() as client:
        yield client


def rows(count: int) -> dict[str, Any]:
    data = np.zeros((count, 3, 8, 8), np.float32)
    return {"inputs": [{"name": "pixels", "shape": list(data.shape), "datatype": "FP32", "data": data.ravel().tolist()}]}


def stats(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    response = client.get(path)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["model_stats"]
    return found


def test_statistics_are_of_what_happened(allowing: httpx.Client) -> None:
    (before,) = stats(allowing, "/v2/models/counted/versions/1/stats")
    (untouched,) = stats(allowing, "/v2/models/counted/versions/2/stats")
    for count in (1, 3, 20):  # 20 images are two batches: the bundle's largest is 16
        assert allowing.post("/v2/models/counted/versions/1/infer", json=rows(count)).status_code == 200
    late = rows(1) | {"parameters": {"timeout": 1}}
    assert allowing.post("/v2/models/counted/versions/1/infer", json=late).status_code == 504
    (after,) = stats(allowing, "/v2/models/counted/versions/1/stats")
    assert after["inference_count"] - before["inference_count"] == 24
    assert after["execution_count"] - before["execution_count"] == 4
    assert after["last_inference"] > 1_700_000_000_000  # milliseconds since 1970
    seen = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in after["batch_stats"]}
    assert seen == {1: 1, 3: 1, 4: 1, 16: 1}
    steps = after["inference_stats"]
    assert (steps["success"]["count"], steps["queue"]["count"], steps["compute_infer"]["count"]) == (3, 3, 3)
    assert steps["success"]["ns"] >= steps["compute_infer"]["ns"] > 0
    assert steps["queue"]["ns"] > 0
    assert steps["success"]["ns"] >= sum(entry["compute_infer"]["ns"] for entry in after["batch_stats"])
    assert stats(allowing, "/v2/models/counted/versions/2/stats") == [untouched]


def test_decoding_is_counted_as_input(allowing: httpx.Client, encode: Any, make_picture: Any) -> None:
    before = stats(allowing, "/v2/models/other/stats")[0]["inference_stats"]["compute_input"]
    answer = allowing.post(
        "/v1/classify", params={"model": "other"}, content=encode(make_picture(1)), headers={"content-type": "image/png"}
    )
    assert answer.status_code == 200
    after = stats(allowing, "/v2/models/other/stats")[0]["inference_stats"]["compute_input"]
    assert after["count"] == before["count"] + 1
    assert after["ns"] > before["ns"]


def test_statistics_of_all_versions_and_models(allowing: httpx.Client) -> None:
    of_model = [(entry["name"], entry["version"]) for entry in stats(allowing, "/v2/models/counted/stats")]
    assert of_model == [("counted", "2"), ("counted", "1")]
    of_all = [(entry["name"], entry["version"]) for entry in stats(allowing, "/v2/models/stats")]
    assert sorted(of_all) == [("counted", "1"), ("counted", "2"), ("other", "1")]


def states(client: httpx.Client, **body: Any) -> dict[tuple[str, str], str]:
    response = client.post("/v2/repository/index", json=body)
    return {(entry["name"], entry["version"]): entry["state"] for entry in response.json()}


def test_a_model_goes_and_comes(allowing: httpx.Client) -> None:
    assert states(allowing)["other", "1"] == "READY"
    assert allowing.post("/v2/repository/models/other/unload").json() == {"name": "other", "unload": True}
    assert allowing.get("/v2/models/other").status_code == 404
    assert ("other", "1") not in states(allowing, ready=True)
    assert states(allowing)["other", "1"] in ("UNLOADING", "UNAVAILABLE")
    assert allowing.post("/v2/models/counted/infer", json=rows(1)).status_code == 200
    assert allowing.post("/v2/repository/models/other/load", json={}).json() == {"name": "other", "load": True}
    assert allowing.post("/v2/models/other/infer", json=rows(1)).status_code == 200


def test_a_bundle_that_cannot_be_loaded_says_why(allowing: httpx.Client, models_dir: Path) -> None:
    broken = models_dir / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "bundle.json").write_text("{")
    try:
        response = allowing.post("/v2/repository/models/broken/load")
        assert (response.status_code, response.json()["code"]) == (400, "load_failed")
        assert "bundle.json" in response.json()["error"]
        assert states(allowing)["broken", "1"] == "UNAVAILABLE"
        assert ("broken", "1") not in states(allowing, ready=True)
    finally:
        shutil.rmtree(models_dir / "broken")


@pytest.mark.parametrize("action", ["load", "unload"])
def test_an_unknown_model_is_404(allowing: httpx.Client, action: str) -> None:
    response = allowing.post(f"/v2/repository/models/nobody/{action}")
    assert (response.status_code, response.json()["code"]) == (404, "unknown_model")


@pytest.mark.parametrize("parameters", [{"config": "{}"}, {"file:1/model.onnx": "AAAA"}])
def test_a_client_brings_no_model_of_its_own(allowing: httpx.Client, parameters: dict[str, str]) -> None:
    response = allowing.post("/v2/repository/models/other/load", json={"parameters": parameters})
    assert (response.status_code, response.json()["code"]) == (400, "bad_parameter")


@pytest.mark.parametrize("action", ["load", "unload"])
def test_models_are_not_changed_unless_the_operator_allows_it(http: httpx.Client, action: str) -> None:
    for model in ("tiny", "nobody"):
        response = http.post(f"/v2/repository/models/{model}/{action}", json={})
        assert (response.status_code, response.json()["code"]) == (403, "forbidden")
        assert "--allow-load" in response.json()["error"]
    assert http.get("/v2/models/tiny/ready").status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("index", b"{", "malformed_json"),
        ("index", b"[]", "malformed_request"),
        ("index", b'{"ready": 1}', "bad_parameter"),
        ("models/other/load", b'{"parameters": []x', "malformed_json"),
        ("models/other/load", b'{"parameters": [1]}', "malformed_request"),
        ("models/other/unload", b'{"parameters": "x"}', "malformed_request"),
    ],
)
def test_a_malformed_repository_request_changes_nothing(allowing: httpx.Client, path: str, body: bytes, code: str) -> None:
    before = states(allowing)
    response = allowing.post(f"/v2/repository/{path}", content=body)
    assert (response.status_code, response.json()["code"]) == (400, code)
    assert states(allowing) == before


def test_the_body_may_be_one_row_and_nothing_else(http: httpx.Client) -> None:
    row = np.random.default_rng(3).normal(size=(1, 3, 8, 8)).astype("<f4")
    url, head = "/v2/models/tiny/infer", {"Inference-Header-Content-Length": "0"}
    response = http.post(url, content=row.tobytes(), headers=head)
    size = int(response.headers["Inference-Header-Content-Length"])
    tensor = {"name": "pixels", "shape": [1, 3, 8, 8], "datatype": "FP32", "data": row.ravel().tolist()}
    wanted = http.post(url, json={"inputs": [tensor]}).json()["outputs"][0]["data"]
    np.testing.assert_array_equal(np.frombuffer(response.content[size:], "<f4"), np.array(wanted, np.float32))
    for raw in (row.tobytes()[:-1], row.tobytes() * 2, b"x"):
        refused = http.post(url, content=raw, headers=head)
        assert (refused.status_code, refused.json()["code"]) == (400, "malformed_tensor")


def test_an_answer_written_off_the_event_loop_is_the_same(monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    monkeypatch.setattr(inference, "_INLINE_NUMBERS", 0)

    async def ask() -> httpx.Response:
        app = build_app([tiny], Settings(threads=1, decode_threads=1))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://local") as client:
                return await client.post("/v2/models/tiny/infer", json=rows(2) | {"id": "mine"})

    response = asyncio.run(ask())
    assert response.status_code == 200
    assert response.json()["id"] == "mine"
    assert response.json()["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [2, 10], "data": [0.0] * 20}]
