"""A server follows its bundles: versions come, change and go without a request lost, and a broken one harms nobody."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image


@pytest.fixture
def png(make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]) -> bytes:
    return encode(make_picture(5))


@pytest.fixture
def models(tmp_path: Path, write_bundle: Callable[..., Path]) -> Path:
    """A models directory with two versions of one model, and another model."""
    folder = tmp_path / "models"
    write_bundle(folder / "digits" / "1", seed=1)
    write_bundle(folder / "digits" / "2", seed=2)
    write_bundle(folder / "cats" / "7" / "exported.zip", seed=7)
    return folder


@pytest.fixture
def served(models: Path, run_server: Callable[..., Any]) -> Iterator[Any]:
    with run_server(models, options=("--versions", "2", "--strict-readiness")) as server:
        yield server


def logits_of(http: httpx.Client, png: bytes, **query: str) -> tuple[str, str, list[float]]:
    response = http.post("/v1/classify", params={"top_k": 10, **query}, content=png)
    assert response.status_code == 200, response.text
    answer = response.json()
    best = sorted(answer["results"][0]["predictions"], key=lambda entry: entry["index"])
    return answer["model"], answer["version"], [entry["probability"] for entry in best]


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.02)


def hang_up(server: Any) -> None:
    os.kill(server.process.pid, signal.SIGHUP)


def version(http: httpx.Client, name: str = "digits") -> str | None:
    response = http.get(f"/v2/models/{name}")
    return str(response.json()["versions"][0]) if response.status_code == 200 else None


def test_folders_name_models_and_versions_and_the_newest_answers(served: Any, png: bytes) -> None:
    with served.http() as http:
        name, newest, second = logits_of(http, png, model="digits")
        _, _, also_second = logits_of(http, png, model="digits", version="2")
        _, one, first = logits_of(http, png, model="digits", version="1")
        assert (name, newest, one) == ("digits", "2", "1")
        assert second == also_second != first
        assert logits_of(http, png)[:2] == ("cats", "7")  # the first by name, from a zip inside its version
        assert http.get("/v2/models/digits").json()["versions"] == ["2", "1"]
        assert http.post("/v1/classify?model=digits&version=3", content=png).json()["code"] == "unknown_version"


def test_only_the_newest_version_is_loaded_by_default(models: Path, run_server: Callable[..., Any]) -> None:
    with run_server(models) as server, server.http() as http:
        assert http.get("/v2/models/digits").json()["versions"] == ["2"]
        assert http.get("/v2/models/digits/versions/1").status_code == 404


def test_a_new_version_takes_over_without_a_request_lost(
    models: Path, run_server: Callable[..., Any], write_bundle: Callable[..., Path], png: bytes
) -> None:
    with run_server(models) as server:
        seen: list[str] = []
        failed: list[str] = []
        stop = threading.Event()

        def client() -> None:
            with server.http() as http:
                while not stop.is_set():
                    response = http.post("/v1/classify?model=digits", content=png)
                    seen.append(response.json().get("version"))
                    if response.status_code != 200:
                        failed.append(response.text)

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            with server.http() as http:
                for newest in (3, 4, 5):
                    write_bundle(models / "digits" / str(newest), seed=newest)
                    hang_up(server)
                    until(lambda newest=newest: version(http) == str(newest))  # type: ignore[misc]
                    until(lambda newest=newest: str(newest) in seen)  # type: ignore[misc]
                text = http.get("/metrics").text
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failed
        assert set(seen) == {"2", "3", "4", "5"}
        assert 'gaussport_model_info{model="digits",provider="cpu",version="5"} 1.0' in text


def test_a_bundle_that_changes_in_place_is_loaded_again(
    tmp_path: Path, run_server: Callable[..., Any], write_bundle: Callable[..., Path], png: bytes
) -> None:
    bundle = write_bundle(tmp_path / "model", seed=1)
    with run_server(bundle, options=("--poll-s", "0.05")) as server, server.http() as http:
        before = logits_of(http, png)
        write_bundle(tmp_path / "next", seed=2)
        bundle.rename(tmp_path / "old")
        (tmp_path / "next").rename(bundle)
        until(lambda: logits_of(http, png)[2] != before[2])
        assert 'gaussport_model_loads_total{outcome="ok"} 2.0' in http.get("/metrics").text


def test_a_broken_newest_version_replaces_nothing_and_is_reported(
    models: Path, run_server: Callable[..., Any], png: bytes
) -> None:
    with run_server(models) as server, server.http() as http:
        shutil.copytree(models / "digits" / "2", models / "digits" / "3")
        (models / "digits" / "3" / "model.onnx").write_bytes(b"broken")
        hang_up(server)
        until(lambda: 'gaussport_model_loads_total{outcome="failed"} 1.0' in http.get("/metrics").text)
        assert logits_of(http, png, model="digits")[1] == "2"
        assert http.get("/v2/health/ready").status_code == 200
        (models / "digits" / "3" / "model.onnx").write_bytes((models / "digits" / "2" / "model.onnx").read_bytes())
        hang_up(server)
        until(lambda: version(http) == "3")
        server.process.send_signal(signal.SIGTERM)
        err = server.process.communicate(timeout=20)[1]
        assert err.count("\n") == 1
        assert "model digits, version 3 cannot be served: model.onnx in" in err


def test_a_broken_bundle_does_not_keep_the_others_from_starting(
    tiny: Path, tmp_path: Path, run_server: Callable[..., Any], png: bytes
) -> None:
    (tmp_path / "bad").mkdir()
    with run_server(tiny, tmp_path / "bad") as server, server.http() as http:
        assert logits_of(http, png)[0] == "tiny"
        assert http.get("/v2/health/ready").status_code == 200
        missing = http.post("/v1/classify?model=bad", content=png)
        assert (missing.status_code, missing.json()["code"], missing.headers["retry-after"]) == (503, "not_ready", "1")
    with run_server(tiny, tmp_path / "bad", options=("--strict-readiness",)) as server, server.http() as http:
        ready = http.get("/v2/health/ready")
        assert (ready.status_code, ready.json()["code"]) == (503, "not_ready")
        assert logits_of(http, png)[0] == "tiny"


def test_a_model_goes_when_its_folder_does_and_a_version_not_before_there_is_another(
    served: Any, models: Path, png: bytes
) -> None:
    with served.http() as http:
        for number in ("1", "2"):
            shutil.rmtree(models / "digits" / number)
        hang_up(served)
        time.sleep(0.3)
        assert logits_of(http, png, model="digits")[1] == "2"
        shutil.rmtree(models / "digits")
        hang_up(served)
        until(lambda: version(http) is None)
        assert http.post("/v1/classify?model=digits", content=png).status_code == 404
        until(lambda: 'model="digits",provider' not in http.get("/metrics").text)
        assert logits_of(http, png)[0] == "cats"


@pytest.mark.parametrize("layout", ["empty", "empty version", "two in a version"])
def test_a_models_directory_without_a_model_is_one_sentence(
    layout: str, tmp_path: Path, write_bundle: Callable[..., Path], run_server: Callable[..., Any]
) -> None:
    folder = tmp_path / "models"
    (folder if layout == "empty" else folder / "m" / "1").mkdir(parents=True)
    if layout == "two in a version":
        for name in ("a", "b"):
            write_bundle(folder / "m" / "1" / name)
    message = r"gaussport serve: .*(is not a bundle|holds [02] bundles)"
    with pytest.raises(pytest.fail.Exception, match=message), run_server(folder):
        pass
