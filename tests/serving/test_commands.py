"""`serve`, `classify` and `query` as people and scripts call them."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
from PIL import Image

from gaussport import cli
from gaussport.errors import ServingError
from gaussport.serving.client import Client


@pytest.fixture
def folder(tmp_path: Path, make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]) -> Path:
    """Three pictures, of which the second is broken."""
    for index in range(3):
        data = encode(make_picture(index))
        (tmp_path / f"{index}.png").write_bytes(data[:60] if index == 1 else data)
    return tmp_path


class Ended(Protocol):
    """Assert that a command ends with this code and one sentence that starts like this."""

    def __call__(self, code: int, message: str, *words: str) -> None: ...


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str]) -> Iterator[Ended]:
    before = signal.getsignal(signal.SIGTERM)  # which `serve` replaces

    def check(code: int, message: str, *words: str) -> None:
        assert cli.main(words) == code
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(message)
        assert shown.err.count("\n") == 1

    yield check
    signal.signal(signal.SIGTERM, before)


def rows(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_classify_and_query_agree_and_a_bad_picture_is_a_row(
    tiny: Path, folder: Path, server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["classify", str(tiny), str(folder), "--top-k", "10", "--json", "--threads", "1"]) == 1
    local = rows(capsys)
    assert cli.main(["query", server.url, str(folder), "--top-k", "10", "--json", "--connections", "2"]) == 1
    remote = rows(capsys)
    assert [row["image"] for row in local] == [str(folder / f"{index}.png") for index in range(3)]
    assert [row["image"] for row in local] == [row["image"] for row in remote]
    assert local[1]["error"]["code"] == remote[1]["error"]["code"] == "image_damaged"
    for index in (0, 2):
        for mine, theirs in zip(local[index]["predictions"], remote[index]["predictions"], strict=True):
            assert mine["label"] == theirs["label"]
            assert mine["probability"] == pytest.approx(theirs["probability"], abs=1e-6)


@pytest.mark.parametrize("command", ["classify", "query"])
def test_people_get_a_table(tiny: Path, folder: Path, server: Any, capsys: pytest.CaptureFixture[str], command: str) -> None:
    target = str(tiny) if command == "classify" else server.url
    assert cli.main([command, target, str(folder / "0.png"), str(folder / "2.png")]) == 0
    shown = capsys.readouterr()
    assert "label" in shown.out
    assert "probability" in shown.out
    assert shown.err == ""


def test_pillows_remarks_reach_nobody(tiny: Path, server: Any, run_server: Callable[..., Any]) -> None:
    broken_exif = Path(__file__).parents[1] / "image" / "inputs" / "exif_bad_garbage.jpg"
    words = [sys.executable, "-m", "gaussport", "classify", str(tiny), str(broken_exif), "--threads", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with run_server(tiny) as own:
        with own.http() as http:
            assert http.post("/v1/classify", content=broken_exif.read_bytes()).status_code == 200
        own.process.send_signal(signal.SIGTERM)
        assert own.process.communicate(timeout=20)[1] == ""


def test_a_missing_picture_is_a_row(tiny: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["classify", str(tiny), str(folder / "0.png"), str(folder / "none.png"), "--json"]) == 1
    assert rows(capsys)[1]["error"]["message"].endswith("none.png cannot be read: No such file or directory")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["classify", "/nowhere", "x.png"], 1),
        (["classify", "BUNDLE", "EMPTY"], 2),
        (["classify", "BUNDLE", "x.png", "--top-k", "0"], 2),
        (["query", "http://127.0.0.1:9", "x.png", "--connections", "0"], 2),
        (["query", "http://127.0.0.1:9", "PICTURE"], 1),
        (["query", "http://[", "PICTURE"], 1),
        (["serve", "/nowhere"], 1),
        (["serve", "BUNDLE", "--port", "70000"], 2),
        (["serve", "BUNDLE", "--host", "no.such.host.invalid"], 1),
        (["serve", "BUNDLE", "--port", "0", "--max-batch", "999"], 2),
        (["serve", "BUNDLE", "BUNDLE", "--port", "0"], 2),
        (["serve", "BUNDLE", "--port", "0", "--provider", "moon"], 1),
    ],
)
def test_what_cannot_be_is_one_sentence(
    tiny: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory, words: list[str], code: int, ended: Ended
) -> None:
    names = {"BUNDLE": str(tiny), "PICTURE": str(folder / "0.png"), "EMPTY": str(tmp_path_factory.mktemp("empty"))}
    ended(code, f"gaussport {words[0]}: ", *(names.get(word, word) for word in words))


def test_a_port_in_use_is_told_at_once(tiny: Path, ended: Ended) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        message = f"gaussport serve: cannot listen on 127.0.0.1:{taken.getsockname()[1]}: Address already in use; choose"
        ended(1, message, "serve", str(tiny), "--port", str(taken.getsockname()[1]))


def test_a_port_is_taken_before_the_first_server_answers() -> None:
    """Two servers started at once: the second must be told, though the first has not begun to accept."""
    from gaussport.serving.listening import listen

    with listen("127.0.0.1", 0) as first, pytest.raises(ServingError, match="Address already in use"):
        listen("127.0.0.1", first.getsockname()[1])


def test_serve_says_where_in_one_line_and_two_models_share_a_server(
    tiny: Path, slow: Path, folder: Path, run_server: Callable[..., Any]
) -> None:
    with run_server(tiny, slow) as server:
        with Client(server.url) as client:
            assert [model["name"] for model in client.models()] == ["tiny", "slow"]
            data = (folder / "0.png").read_bytes()
            answers = [next(client.classify([data], model=name)) for name in ("tiny", "slow")]
        assert answers[0].predictions[0]["label"] == answers[1].predictions[0]["label"]
        server.process.send_signal(signal.SIGTERM)
        out, err = server.process.communicate(timeout=20)
        assert (out, err, server.process.returncode) == ("", "", 0)


def test_the_client_waits_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    answers = [
        httpx.Response(429, headers={"Retry-After": "3"}, json={"error": "full", "code": "queue_full"}),
        httpx.Response(503, headers={"Retry-After": "soon"}, json={"error": "stopping", "code": "draining"}),
        httpx.Response(200, json={"results": [{"predictions": [], "warnings": ["w"]}], "timing_ms": {}}),
    ]
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    with Client("http://server", transport=transport) as client:
        assert next(client.classify([b"x"])).warnings == ["w"]
    assert waited == [3, 1]


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (httpx.Response(200, text="<html>"), "does not answer like a gaussport server"),
        (httpx.Response(200, json=[]), "does not answer like a gaussport server"),
        (httpx.Response(502, text="bad gateway"), "answered 502"),
        (httpx.Response(404, json={"error": "no model of that name", "code": "unknown_model"}), "no model of that name"),
        (httpx.Response(429, headers={"Retry-After": "60"}, json={"error": "full", "code": "queue_full"}), "full"),
    ],
)
def test_a_server_that_is_none_or_will_not_is_one_sentence(response: httpx.Response, message: str) -> None:
    with (
        Client("server:1", transport=httpx.MockTransport(lambda _: response), patience_s=1) as client,
        pytest.raises(ServingError, match=message),
    ):
        next(client.classify([b"x"]))
