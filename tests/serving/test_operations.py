"""What an operator relies on: keys, TLS, origins, headers, pages, logs, traces, limits on memory."""

import asyncio
import contextlib
import io
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from PIL import Image

from gaussport.errors import UsageError
from gaussport.models.image.decode import ImageLimits, Opened, open_picture
from gaussport.serving.api_keys import ApiKeys
from gaussport.serving.app import build_app
from gaussport.serving.pixel_room import PixelRoom
from gaussport.serving.served_model import shares_for
from gaussport.serving.served_models import ServedModels
from gaussport.serving.settings import Settings
from gaussport.serving.shares import Shares, cores_each, shares
from gaussport.serving.tracing import OpenTelemetry

TLS = Path(__file__).parent / "tls"
T = TypeVar("T")
KEY, OTHER = "k" * 16 + "-first", "k" * 16 + "-second"


@pytest.fixture
def png(make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]) -> bytes:
    return encode(make_picture(5))


class Local:
    """An application in this process, asked as a server would be."""

    def __init__(self, app: FastAPI, runner: asyncio.Runner) -> None:
        self._runner = runner
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://local")

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._http.request(method, path, **options))

    def run(self, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, T]]) -> T:
        return self._runner.run(work(self._http))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def options(self, path: str, **options: Any) -> httpx.Response:
        return self.request("OPTIONS", path, **options)


@contextlib.contextmanager
def client_of(app: FastAPI) -> Iterator[Local]:
    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        try:
            yield Local(app, runner)
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


@pytest.fixture
def client(tiny: Path, request: pytest.FixtureRequest) -> Iterator[Local]:
    """A client of an application in this process, with the settings of the test's parameter."""
    with client_of(build_app([tiny], Settings(threads=1, decode_threads=1, **getattr(request, "param", {})))) as found:
        yield found


@pytest.mark.parametrize("client", [{"api_keys": (OTHER, KEY)}], indirect=True)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"authorization": f"bearer  {OTHER}"}, 200),
        ({"X-API-Key": KEY}, 200),
        ({"X-API-Key": KEY[:-1]}, 401),
        ({"X-API-Key": KEY + "x"}, 401),
        ({"X-API-Key": "\xff\xfe"}, 401),
        ({"Authorization": f"Basic {KEY}"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer wrong", "X-API-Key": KEY}, 401),
    ],
)
def test_a_key_is_wanted(client: Local, png: bytes, headers: Mapping[str, str], status: int) -> None:
    raw = [(name, value.encode("latin-1")) for name, value in headers.items()]
    response = client.post("/v1/classify", content=png, headers=raw)
    assert response.status_code == status, response.text
    if status == 401:
        assert response.json()["code"] == "unauthorized"
        assert response.headers["www-authenticate"] == "Bearer"
        assert KEY not in response.text


@pytest.mark.parametrize("client", [{"api_keys": (KEY,)}], indirect=True)
def test_probes_and_scrapers_need_no_key_and_nothing_else_is_open(client: Local) -> None:
    for path in ("/", "/v2/health/live", "/v2/health/ready", "/metrics"):
        assert client.get(path).status_code == 200
    for path in (
        "/v2",
        "/v1/models",
        "/v2/models/tiny",
        "/docs",
        "/openapi.json",
        "/nowhere",
        "/v2/health/live/x",
        "/metrics/",  # httpx would send "//metrics" as "/", which is open
    ):
        assert client.get(path).status_code == 401, path
    assert 'gaussport_rejected_requests_total{code="unauthorized"} 8.0' in client.get("/metrics").text


@pytest.mark.parametrize("client", [{"api_keys": (KEY,)}, {}], indirect=True, ids=["keys", "none"])
def test_the_description_says_which_paths_want_a_key(client: Local, request: pytest.FixtureRequest) -> None:
    described = client.get("/openapi.json", headers={"X-API-Key": KEY}).json()
    if "none" in request.node.name:
        assert "security" not in described
        assert "securitySchemes" not in described.get("components", {})
        return
    schemes = described["components"]["securitySchemes"]
    assert {tuple(wish) for wish in described["security"]} == {(name,) for name in schemes}
    assert schemes["bearer"] == {**schemes["bearer"], "type": "http", "scheme": "bearer"}
    assert schemes["header"] == {"type": "apiKey", "in": "header", "name": "X-API-Key"}
    for path, operations in described["paths"].items():
        open_here = client.get(path).status_code != 401
        for operation in operations.values():
            assert (operation.get("security") == []) == open_here, path


def test_keys_in_a_file_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\n  {KEY}  \n")
    keys = ApiKeys((), file)
    assert keys.admit(KEY)
    file.write_text(OTHER)
    keys.read()
    assert not keys.admit(KEY)
    assert keys.admit(OTHER)
    for content in ("", "short", "é" * 20):
        file.write_text(content)
        with pytest.raises(UsageError):
            keys.read()
        assert keys.admit(OTHER)  # as they were
    with pytest.raises(UsageError, match="cannot be read"):
        ApiKeys((), tmp_path / "none")


def test_other_origins_may_not_call_unless_they_are_named(tiny: Path) -> None:
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    with client_of(build_app([tiny], Settings(threads=1))) as client:
        assert "access-control-allow-origin" not in client.get("/v2", headers=preflight).headers
        assert client.options("/v1/classify", headers=preflight).status_code == 405
    settings = Settings(threads=1, cors_origins=("https://a.example",), api_keys=(KEY,))
    with client_of(build_app([tiny], settings)) as client:
        assert (
            client.options("/v1/classify", headers=preflight).headers["access-control-allow-origin"] == "https://a.example"
        )
        assert client.options("/v1/classify", headers=preflight | {"Origin": "https://b.example"}).status_code == 400
        refused = client.get("/v2", headers=preflight)  # the page may read that a key is missing
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://a.example")


@pytest.mark.parametrize("path", ["/v2", "/nowhere", "/v1/classify", "/metrics", "/openapi.json"])
def test_every_answer_has_the_security_headers(client: Local, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_the_pages_load_from_here_and_nowhere_else(client: Local, page: str) -> None:
    shown = client.get(page)
    assert "//" not in shown.text.replace("<!doctype", "")
    assert "<script>" not in shown.text
    policy = shown.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "http" not in policy
    for target in re.findall(r'(?:src|href|spec-url)="([^"]+)"', shown.text):
        asset = client.get(f"/{target}")
        assert asset.status_code == 200, target
        assert asset.content


@pytest.mark.parametrize("client", [{"docs": False}], indirect=True)
def test_the_pages_can_be_left_out(client: Local) -> None:
    assert client.get("/docs").status_code == 404


def test_the_description_promises_our_errors_and_no_other(client: Local) -> None:
    description = client.get("/openapi.json").json()
    assert "ValidationError" not in json.dumps(description)
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            error = operation["responses"]["default"]["content"]["application/json"]["schema"]
            assert set(error["required"]) == {"error", "code", "request_id"}, (path, method)
    parameters = description["paths"]["/v1/classify"]["post"]["parameters"]
    assert {entry["name"] for entry in parameters} == {"top_k", "model", "version", "timeout_ms", "priority"}


@pytest.mark.parametrize("client", [{"queue_mb": 0.002}], indirect=True)
def test_bodies_of_all_requests_together_are_bounded(client: Local, png: bytes) -> None:
    assert len(png) < 2000
    assert client.post("/v1/classify", content=png).status_code == 200
    refused = client.post("/v1/classify", content=png + b"\0" * 2000)
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, "overloaded", "1")
    for _ in range(3):  # what was held is given back, by the good and by the refused
        assert client.post("/v1/classify", content=png).status_code == 200
    assert "gaussport_body_bytes 0.0" in client.get("/metrics").text


def test_spans_follow_a_request_and_its_steps(tiny: Path, png: bytes) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with client_of(build_app([tiny], Settings(threads=1), OpenTelemetry(provider))) as client:
        answer = client.post("/v1/classify", content=png, headers={"traceparent": parent})
        client.post("/v1/classify", content=b"x")
    finished = exporter.get_finished_spans()
    served, failed = [json.loads(span.to_json()) for span in finished if span.name == "POST /v1/classify"]
    steps = {span.name: json.loads(span.to_json()) for span in finished}
    assert served["context"]["trace_id"] == "0x0af7651916cd43dd8448eb211c80319c"
    assert served["parent_id"] == "0xb7ad6b7169203331"
    assert served["attributes"]["gaussport.request_id"] == answer.json()["request_id"]
    for step in ("decode", "queue", "inference"):
        assert steps[step]["parent_id"] == served["context"]["span_id"]
        assert served["start_time"] <= steps[step]["start_time"] <= steps[step]["end_time"] <= served["end_time"]
    assert steps["decode"]["end_time"] <= steps["queue"]["end_time"] <= steps["inference"]["end_time"]
    assert failed["attributes"]["error.type"] == "not_an_image"


def test_https_and_logs_for_machines(tiny: Path, run_server: Callable[..., Any], png: bytes) -> None:
    options = ("--tls-cert", f"{TLS}/cert.pem", "--tls-key", f"{TLS}/key.pem", "--log-format", "json", "--log-level", "info")
    with run_server(tiny, options=options) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=f"{TLS}/cert.pem")
        with httpx.Client(base_url=server.url, verify=trusted, trust_env=False) as http:
            assert http.post("/v1/classify", content=png, headers={"x-request-id": "mine"}).status_code == 200
            assert http.post("/v1/classify/evil%0apath?x=evil", content=png).status_code == 404
        server.process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in server.process.communicate(timeout=20)[1].splitlines()]
    access = [line for line in lines if line["logger"] == "gaussport.access"]
    assert [(line["request_id"], line["route"], line["status"]) for line in access[:1]] == [("mine", "/v1/classify", 200)]
    assert (access[1]["route"], access[1]["code"]) == ("unmatched", "not_found")
    assert all({"time", "level"} <= set(line) for line in lines)
    assert "evil" not in json.dumps(lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tls-cert", "/nowhere.pem"), r"/nowhere\.pem cannot be read"),
        (("--tls-cert", f"{TLS}/key.pem"), "cannot be used"),
        (("--tls-key", f"{TLS}/key.pem"), "--tls-key needs --tls-cert"),
        (("--api-keys-file", "/nowhere"), "API keys in /nowhere cannot be read"),
        (("--allow-load", "--workers", "2"), "--allow-load would change one worker only"),
        (("--config", "/nowhere.toml"), r"/nowhere\.toml cannot be read"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_is_loaded(
    tmp_path: Path, run_server: Callable[..., Any], options: tuple[str, ...], message: str
) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match=f"did not start: gaussport serve: .*{message}"),
        run_server(tmp_path, options=options),
    ):
        pass


def test_health_answers_while_every_decoding_thread_is_busy(tiny: Path, png: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    started, free = threading.Event(), threading.Event()

    def stuck(data: bytes, limits: ImageLimits) -> Opened:
        started.set()
        assert free.wait(20)
        return open_picture(data, limits)

    monkeypatch.setattr("gaussport.serving.decoding.open_picture", stuck)

    async def both(http: httpx.AsyncClient) -> tuple[int, int]:
        asking = asyncio.ensure_future(http.post("/v1/classify", content=png))
        await asyncio.to_thread(started.wait, 20)
        health = await http.get("/v2/health/live")
        assert not asking.done()
        free.set()
        return health.status_code, (await asking).status_code

    with client_of(build_app([tiny], Settings(threads=1, decode_threads=1))) as client:
        assert client.run(both) == (200, 200)


@pytest.mark.parametrize("client", [{"still_only": True}], indirect=True)
def test_animated_pictures_are_refused_where_only_still_ones_are_taken(client: Local) -> None:
    still, animated = io.BytesIO(), io.BytesIO()
    frames = [Image.new("RGB", (9, 7), colour) for colour in ("red", "blue")]
    frames[0].save(still, "GIF")
    frames[0].save(animated, "GIF", save_all=True, append_images=frames[1:])
    assert client.post("/v1/classify", content=still.getvalue()).status_code == 200
    refused = client.post("/v1/classify", content=animated.getvalue())
    assert (refused.status_code, refused.json()["code"]) == (422, "animated")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/classify"), ("GET", "/v1/models"), ("POST", "/v2/models/tiny/infer")]
)
def test_an_unforeseen_error_says_nothing_but_the_request_id(
    client: Local, method: str, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On the routes that skip the framework and on those that it finds."""

    def broken(*_: object) -> None:
        raise KeyError("a secret")

    monkeypatch.setattr(ServedModels, "find", broken)
    monkeypatch.setattr(ServedModels, "__iter__", broken)
    answer = client.request(method, path, headers={"X-Request-ID": "mine"})
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal error, quote request id mine", "code": "internal", "request_id": "mine"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["request mine failed"]


@pytest.mark.parametrize(
    ("wish", "cores", "threads", "at_once"),
    [
        ({}, 1, 1, 1),
        ({}, 2, 1, 2),
        ({}, 3, 1, 3),
        ({}, 4, 2, 2),
        ({}, 8, 2, 4),
        ({}, 16, 4, 4),
        ({"workers": 2}, 8, 2, 2),
        ({"workers": 100}, 8, 1, 1),
        ({"threads": 5}, 8, 5, 1),
        ({"threads": 1, "batches_at_once": 3}, 8, 1, 3),
        ({"batches_at_once": 2}, 8, 4, 2),
        ({"batches_at_once": 9}, 8, 1, 9),
        ({"provider": "cuda"}, 8, 8, 1),
        ({"provider": "auto"}, 4, 2, 2),
    ],
    ids=str,
)
def test_cores_are_shared_by_batches_that_run_side_by_side(
    wish: dict[str, Any], cores: int, threads: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaussport.serving.shares.usable_cores", lambda: cores)
    settings = Settings(**wish)
    assert shares(settings, cores_each(settings)) == Shares(threads, at_once)
    assert shares_for(settings, text=True) == Shares(settings.threads or cores_each(settings))


def test_probes_are_answered_while_models_load_and_the_process_ends_when_told(
    tmp_path: Path, write_bundle: Callable[..., Path]
) -> None:
    """A graph of six thousand nodes takes its time: the server must not wait for it."""
    bundle = write_bundle(tmp_path / "big", slow_loops=3000)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    words = [sys.executable, "-m", "gaussport", "serve", str(bundle), "--port", str(port), "--threads", "1"]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as http,
    ):
        give_up = time.monotonic() + 20
        while True:
            with contextlib.suppress(httpx.ConnectError):
                live = http.get("/v2/health/live")
                break
            assert time.monotonic() < give_up
        ready, asked = http.get("/v2/health/ready"), http.post("/v1/classify", content=b"x")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert (live.status_code, ready.status_code, ready.json()["code"]) == (200, 503, "not_ready")
    assert ready.headers["retry-after"] == "1"
    assert (asked.status_code, asked.json()["code"], asked.headers["retry-after"]) == (503, "not_ready", "1")
    assert (out, err, process.returncode) == ("", "", 0)


def test_a_folder_for_metrics_of_somebody_elses_is_left_alone(
    tiny: Path, tmp_path: Path, run_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "missing"))
    with run_server(tiny) as server, server.http() as http:
        assert "process_resident_memory_bytes" in http.get("/metrics").text


def test_pictures_of_every_size_share_a_request(
    tiny: Path, make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]
) -> None:
    pictures = [encode(make_picture(1, side=side)) for side in (1, 9, 300)]
    wide = encode(make_picture(2).resize((1200, 900)), "JPEG")
    with client_of(build_app([tiny], Settings(threads=1))) as client:
        solo = [client.post("/v1/classify", content=data).json()["results"][0] for data in (*pictures, wide)]
        files = [("file", ("x", data)) for data in (*pictures, wide)]
        together = client.post("/v1/classify", files=files).json()["results"]
    for one, other in zip(solo, together, strict=True):
        assert [entry["index"] for entry in one["predictions"]] == [entry["index"] for entry in other["predictions"]]


def test_room_for_pixels_is_shared_and_given_back() -> None:
    room, most, running = PixelRoom(100), 0, 0
    lock = threading.Lock()

    def decode(pixels: int) -> None:
        nonlocal most, running
        with room.reserved(pixels):
            with lock:
                running += pixels
                most = max(most, running)
            time.sleep(0.001)
            with lock:
                running -= pixels

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(decode, [60, 30, 30, 100, 10, 90, 50, 50] * 4))
    assert 90 <= most <= 100
    decode(1000)  # more than all of it: alone
    assert most == 1000
