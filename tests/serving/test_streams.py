"""Streams on real servers: over HTTP and sockets, cut anywhere, many at once, expired, bounded, reloaded, restarted."""

import asyncio
import contextlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gaussport.export.bundle.store import open_bundle
from gaussport.models.text import Tokenization
from gaussport.serving.errors import STATUS, RequestError
from gaussport.serving.metrics import Metrics
from gaussport.serving.served_model import ServedModel
from gaussport.serving.settings import Settings
from gaussport.serving.streams.chunks import tokens_of
from gaussport.serving.streams.registry import Streams
from tests.serving.conftest import Server, running, write_tiny
from tests.serving.texts import in_order, logits_of, softmax, write_texts

BYTES = {"Content-Type": "application/octet-stream"}
PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
BYTES_PER_STREAM = 8 + 4 * 4 + 8


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("bundles") / "texts")


@pytest.fixture(scope="module")
def served(bundle: Path) -> Iterator[Server]:
    others = (write_texts(bundle.parent / "still", "still", streams=False), write_tiny(bundle.parent / "tiny"))
    with running(bundle, *others, options=("--max-streams", "60", "--max-delay-ms", "4", "--max-body-mb", "2")) as server:
        yield server


@pytest.fixture
def http(served: Server) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def opened(http: httpx.Client, **parameters: Any) -> str:
    response = http.post("/v1/streams", params=parameters)
    assert response.status_code == 201, response.text
    assert response.headers["location"] == f"/v1/streams/{response.json()['stream']}"
    return response.headers["location"]


def fed(http: httpx.Client, path: str, chunk: bytes, **parameters: Any) -> dict[str, Any]:
    response = http.post(path, content=chunk, headers=BYTES, params=parameters)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def refused(response: httpx.Response, code: str, words: str = "") -> None:
    assert (response.status_code, response.json()["code"]) == (STATUS[code], code), response.text
    assert words in response.json()["error"]


def close(answer: dict[str, Any], text: bytes) -> None:
    assert answer["tokens"] == len(text)
    np.testing.assert_allclose(in_order(answer["predictions"]), softmax(logits_of(text)), atol=1e-4)


def cut(text: bytes, sizes: Sequence[int]) -> list[bytes]:
    places = np.unique(np.clip(np.cumsum([0, *sizes]), 0, len(text))).tolist()
    return [text[start:end] for start, end in zip(places, [*places[1:], len(text)], strict=True) if start < end]


# What a stream answers


@given(text=st.binary(min_size=1, max_size=700), sizes=st.lists(st.integers(1, 300), max_size=8))
@settings(max_examples=15, deadline=None)
def test_any_chunks_answer_what_the_whole_does(text: bytes, sizes: list[int], served: Server) -> None:
    with served.http() as http:
        path, sent = opened(http), b""
        for chunk in cut(text, sizes):
            sent += chunk
            close(fed(http, path, chunk), sent)
        assert sent == text
        assert http.delete(path).status_code == 200


def test_a_chunk_longer_than_one_run(http: httpx.Client) -> None:
    text = bytes(np.random.default_rng(0).integers(0, 256, 10_001, np.uint8))
    path = opened(http)
    fed(http, path, text[:3])
    close(fed(http, path, text[3:]), text)
    http.delete(path)


def test_a_character_may_be_cut(http: httpx.Client) -> None:
    text, path, answer = "Grüße, 世界 🙂".encode(), opened(http), {}
    for byte in range(len(text)):
        response = http.post(path, content=text[byte : byte + 1], headers=PLAIN)
        assert response.status_code == 200, response.text
        answer = response.json()
    close(answer, text)
    http.delete(path)


def test_text_and_tokens_in_json(http: httpx.Client) -> None:
    path = opened(http)
    http.post(path, json={"text": "Grü"})
    answer = http.post(path, json={"tokens": [0xC3, 0x9F, 0, 255]}).json()
    close(answer, "Grüß".encode() + b"\0\xff")
    http.delete(path)


def test_what_is_told_of_a_stream(http: httpx.Client) -> None:
    first = http.post("/v1/streams", params={"ttl_s": 60}).json()
    path = f"/v1/streams/{first['stream']}"
    assert (first["model"], first["version"], first["tokens"]) == ("texts", "1", 0)
    assert (first["ttl_s"], first["bytes"]) == (60, BYTES_PER_STREAM)
    assert http.get("/v1/models").json()["models"][0]["stream"] == {"bytes": BYTES_PER_STREAM}
    assert http.get(path).json()["predictions"] == []
    answer = fed(http, path, b"hello", top_k=2)
    assert len(answer["predictions"]) == 2
    assert answer["timing_ms"].keys() == {"queue", "inference", "total"}
    seen = http.get(path, params={"top_k": 2}).json()
    assert (seen["tokens"], seen["predictions"]) == (5, answer["predictions"])
    assert seen["idle_s"] >= 0
    assert http.delete(path).json()["tokens"] == 5
    for response in (http.get(path), http.delete(path), http.post(path, content=b"a")):
        refused(response, "stream_unknown", "it was closed; open one and send the text from its beginning")
    text = http.get("/metrics").text
    assert "gaussport_streams 0.0" in text
    assert 'gaussport_stream_tokens_total{model="texts"}' in text


def test_many_clients_at_once_never_mix(served: Server) -> None:
    random = np.random.default_rng(4)
    texts = [bytes(random.integers(0, 256, 200, np.uint8)) for _ in range(24)]
    sizes = [random.integers(1, 80, 4).tolist() for _ in texts]

    def feed(text: bytes, sizes: list[int]) -> None:
        with served.http() as http:
            path, sent = opened(http), b""
            for chunk in cut(text, sizes):
                sent += chunk
                close(fed(http, path, chunk), sent)
            http.delete(path)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(feed, texts, sizes))
    with served.http() as http:
        (stats,) = http.get("/v2/models/texts/stats").json()["model_stats"]
    assert max(batch["batch_size"] for batch in stats["batch_stats"]) > 1  # chunks of several streams in one run


# What is refused


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"content": b""}, "empty_body", "send a piece of text"),
        ({"json": {"text": ""}}, "empty_text", ""),
        ({"json": {"tokens": []}}, "empty_text", "at least one token"),
        ({"json": {"tokens": [256]}}, "malformed_request", "none the padding 256"),
        ({"json": {"tokens": [-1]}}, "malformed_request", "from 0 to 256"),
        ({"json": {"tokens": [True]}}, "malformed_request", ""),
        ({"json": {"text": 1}}, "malformed_request", ""),
        ({"json": {"image": "AAAA"}}, "malformed_request", ""),
        ({"content": b'{"text": "\\ud800"}', "headers": {"Content-Type": "application/json"}}, "malformed_json", ""),
        ({"content": b"a", "headers": {"Content-Type": "image/png"}}, "unsupported_media_type", ""),
        ({"content": b"a", "headers": {"Content-Type": "text/plain; charset=utf-16"}}, "unsupported_media_type", "UTF-8"),
        ({"content": b"a" * 1_100_000}, "text_too_long", "1,048,576"),
        ({"content": b"a" * 2_100_000}, "body_too_large", ""),
        ({"content": b"a", "params": {"offset": "x"}}, "bad_parameter", ""),
        ({"content": b"a", "params": {"offset": 3}}, "stream_offset", "has had 4 tokens"),
    ],
)
def test_a_refused_chunk_leaves_the_stream_as_it_was(
    body: dict[str, Any], code: str, words: str, http: httpx.Client
) -> None:
    path = opened(http)
    fed(http, path, b"good")
    refused(http.post(path, **body), code, words)
    close(fed(http, path, b" bye", offset=4), b"good bye")
    http.delete(path)


def test_a_chunk_that_comes_too_late_is_not_taken(http: httpx.Client) -> None:
    path = opened(http)
    fed(http, path, b"good")
    refused(http.post(path, content=b"x" * 900_000, headers=BYTES, params={"timeout_ms": 0.5}), "deadline_passed")
    close(fed(http, path, b" bye"), b"good bye")
    http.delete(path)


def test_models_that_cannot_stream(http: httpx.Client) -> None:
    for name in ("still", "tiny"):
        refused(http.post("/v1/streams", params={"model": name}), "cannot_stream", "only a causal GMA model of text")
    refused(http.post("/v1/streams", params={"model": "other"}), "unknown_model")
    refused(http.post("/v1/streams", params={"ttl_s": "nan"}), "bad_parameter")
    refused(http.get("/v1/streams/abc"), "stream_unknown", "never opened here, or the server was restarted")


def test_there_is_a_bound(served: Server, http: httpx.Client) -> None:
    paths = [opened(http, ttl_s=100) for _ in range(60)]
    response = http.post("/v1/streams")
    refused(response, "too_many_streams", "60 streams are open")
    assert 1 <= int(response.headers["retry-after"]) <= 100
    with pytest.raises(InvalidStatus) as caught, socket(served):
        pass
    assert caught.value.response.status_code == 429
    for path in paths:
        http.delete(path)
    http.delete(opened(http))


# Sockets


@contextlib.contextmanager
def socket(served: Server, path: str = "/v1/streams/socket", **options: Any) -> Iterator[ClientConnection]:
    with connect(f"ws{served.url.removeprefix('http')}{path}", proxy=None, **options) as connection:
        yield connection


def told(connection: ClientConnection, piece: bytes | str) -> dict[str, Any]:
    connection.send(piece)
    found: dict[str, Any] = json.loads(connection.recv(timeout=20))
    return found


def test_a_socket_is_a_stream(served: Server, http: httpx.Client) -> None:
    text = "Grüße, 世界".encode()
    with socket(served, "/v1/streams/socket?top_k=4&model=texts") as connection:
        close(told(connection, text[:3]), text[:3])
        close(told(connection, text[3:9]), text[:9])
        answer = told(connection, "again")
        close(answer, text[:9] + b"again")
        assert told(connection, "")["code"] == "empty_text"
        close(told(connection, b"!"), text[:9] + b"again!")
        for number in range(5):  # sent ahead, answered in order
            connection.send(str(number))
        tokens = [json.loads(connection.recv(timeout=20))["tokens"] for _ in range(5)]
        assert tokens == [16, 17, 18, 19, 20]
        assert http.get(f"/v1/streams/{answer['stream']}").json()["tokens"] == 20
    wait_until(lambda: http.get(f"/v1/streams/{answer['stream']}").status_code == 404)


def test_a_socket_on_an_open_stream(served: Server, http: httpx.Client) -> None:
    path = opened(http)
    fed(http, path, b"one ")
    with socket(served, f"{path}/socket") as connection:
        close(told(connection, b"two "), b"one two ")
    close(fed(http, path, b"three"), b"one two three")
    with socket(served, f"{path}/socket") as connection:
        http.delete(path)
        assert told(connection, b"more")["code"] == "stream_unknown"
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=20)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/streams/socket?model=tiny", 400),
        ("/v1/streams/socket?model=other", 404),
        ("/v1/streams/socket?top_k=x", 400),
        ("/v1/streams/none/socket", 404),
        ("/v1/nowhere", 403),
    ],
)
def test_sockets_that_are_refused(path: str, status: int, served: Server, http: httpx.Client) -> None:
    with pytest.raises(InvalidStatus) as caught, socket(served, path):
        pass
    assert caught.value.response.status_code == status
    if status != 403:
        assert json.loads(caught.value.response.body).keys() == {"error", "code", "request_id"}
    assert http.get("/v2/health/live").status_code == 200


def test_pages_of_other_origins_are_refused(served: Server) -> None:
    with pytest.raises(InvalidStatus) as caught, socket(served, origin="https://evil.example"):
        pass
    assert caught.value.response.status_code == 403
    with socket(served, origin=served.url) as connection:
        close(told(connection, b"a"), b"a")


def test_a_message_that_is_too_large_ends_the_connection(served: Server) -> None:
    with socket(served) as connection:
        with contextlib.suppress(ConnectionClosed):
            connection.send(bytes(1_100_000))
        with pytest.raises(ConnectionClosed) as caught:
            connection.recv(timeout=20)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009


# The life of a stream


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_idle_streams_end(served: Server, http: httpx.Client) -> None:
    path = opened(http, ttl_s=0.2)
    with socket(served, "/v1/streams/socket?ttl_s=0.2") as connection:
        assert json.loads(connection.recv(timeout=20))["code"] == "stream_unknown"
    wait_until(lambda: "gaussport_streams 0.0" in http.get("/metrics").text)
    refused(http.post(path, content=b"a", headers=BYTES), "stream_unknown", "it had nothing for 0.2 s")


def test_a_reload_a_restart_and_keys(bundle: Path, tmp_path: Path) -> None:
    """A stream goes on with the version it was opened on; a server that begins anew knows none."""
    home = tmp_path / "models" / "texts"
    shutil.copytree(bundle, home / "1")
    key = "k" * 20
    (tmp_path / "keys").write_text(key)
    options = ("--api-keys-file", str(tmp_path / "keys"))
    headers = {"Authorization": f"Bearer {key}"}
    with running(home.parent, options=options) as server, server.http(headers=headers) as http:
        path = opened(http)
        fed(http, path, b"before ")
        shutil.copytree(bundle, home / "2")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: http.get("/v2/models/texts").json()["versions"] == ["2"])
        answer = fed(http, path, b"after")
        close(answer, b"before after")
        assert answer["version"] == "1"
        assert http.post("/v1/streams").json()["version"] == "2"
        with pytest.raises(InvalidStatus) as caught, socket(server):
            pass
        assert caught.value.response.status_code == 401
        with socket(server, additional_headers=headers) as connection:
            close(told(connection, b"a"), b"a")
    with running(home.parent, options=options) as server, server.http(headers=headers) as http:
        refused(http.post(path, content=b"a", headers=BYTES), "stream_unknown", "the server was restarted")


# Inside


def test_chunks_of_a_model_with_a_tokenizer_are_tokens() -> None:
    class Reader:
        spec = Tokenization(kind="tokenizers", file="tokenizer.json", vocabulary=9, pad=0, max_tokens=5, stride=2)
        expect_fits = staticmethod(lambda tokens: None)

    reader: Any = Reader()
    assert tokens_of("application/json", b'{"tokens": [1, 8]}', reader).tolist() == [1, 8]
    for kind, body in (("application/json", b'{"text": "a"}'), ("text/plain", b"a"), ("", b"a")):
        with pytest.raises(RequestError, match="reach over the ends of chunks: send them yourself"):
            tokens_of(kind, body, reader)
    with pytest.raises(RequestError, match="none the padding 0"):
        tokens_of("application/json", b'{"tokens": [1, 0]}', reader)


@pytest.mark.parametrize("several", [{"workers": 2}, {"engine": "ray"}])
def test_several_processes_have_no_streams(several: dict[str, Any], bundle: Path) -> None:
    limits, metrics = Settings(threads=1, **several), Metrics()
    served = ServedModel(open_bundle(bundle), limits, metrics)
    with pytest.raises(RequestError, match="serve with --workers 1 and --engine plain") as caught:
        Streams(limits, metrics).open(served)
    assert STATUS[caught.value.code] == 501


def test_a_model_that_goes_ends_its_streams_and_frees_them(bundle: Path) -> None:
    async def scenario() -> None:
        metrics, limits = Metrics(), Settings(threads=1, max_streams=3, stream_mb=2 * BYTES_PER_STREAM / 1e6)
        served, streams = ServedModel(open_bundle(bundle), limits, metrics), Streams(limits, metrics)
        served.start()
        first, second = streams.open(served), streams.open(served)
        with pytest.raises(RequestError, match="2 streams are open"):
            streams.open(served)  # there is room for the bytes of two
        tokens = np.arange(5)
        late = served.queue.clock() + 20
        going = asyncio.ensure_future(streams.advance(first, tokens, late))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="still reads the chunk before"):
            await streams.advance(first, tokens, late)
        assert (await going).tokens == 5
        streams.close(second)
        await served.retire(patience_s=0.01)
        with pytest.raises(RequestError, match="its model was replaced or unloaded"):
            streams.find(first.id)
        assert not served.busy
        assert "gaussport_streams 0.0" in metrics.text().decode()

    asyncio.run(scenario())
