"""A classifier small enough to be written by hand, and a real server around it.

The graph is flatten → matmul with fixed random weights, so that different pictures have different logits and a row
that went to the wrong request is noticed.
"""

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import onnx
import pytest
from PIL import Image

from gaussport.export.bundle.manifest import FileRecord, Manifest, Provenance, TensorSpec
from gaussport.export.bundle.store import writing_bundle
from gaussport.models.image.preprocess import Preprocessing
from gaussport.serving.app import build_app
from gaussport.serving.errors import STATUS
from gaussport.serving.settings import Settings

LABELS = tuple(f"label{index}" for index in range(10))
SIDE = 8


@dataclass(frozen=True)
class Server:
    """A running `gaussport serve`."""

    url: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def http(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, trust_env=False, timeout=30, **options)  # type: ignore[arg-type]


def write_tiny(
    destination: Path, name: str = "tiny", batch: str | int = "batch", slow_loops: int = 0, seed: int = 0
) -> Path:
    """Write the bundle; another `seed` is another model. `slow_loops` repeats a matmul, so that requests pile up."""
    rng = np.random.default_rng(seed)
    size = 3 * SIDE * SIDE
    weights = onnx.numpy_helper.from_array(rng.normal(0, 0.2, (size, len(LABELS))).astype(np.float32), "weights")
    nodes = [onnx.helper.make_node("Flatten", ["pixels"], ["flat"])]
    initializers = [weights]
    last = "flat"
    if slow_loops:
        identity = np.eye(size, dtype=np.float32)
        initializers.append(onnx.numpy_helper.from_array(np.tile(identity, (1, 40)), "wide"))
        initializers.append(onnx.numpy_helper.from_array(np.tile(identity / 40, (40, 1)), "narrow"))
        for index in range(slow_loops):
            nodes.append(onnx.helper.make_node("MatMul", [last, "wide"], [f"wide{index}"]))
            nodes.append(onnx.helper.make_node("MatMul", [f"wide{index}", "narrow"], [f"narrow{index}"]))
            last = f"narrow{index}"
    nodes.append(onnx.helper.make_node("MatMul", [last, "weights"], ["logits"]))
    graph = onnx.helper.make_graph(
        nodes,
        "tiny",
        [onnx.helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, [batch, 3, SIDE, SIDE])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [batch, len(LABELS)])],
        initializers,
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)

    def manifest(files: dict[str, FileRecord]) -> Manifest:
        return Manifest(
            name=name,
            family="dot",
            config={},
            labels=LABELS,
            preprocessing=Preprocessing(size=(SIDE, SIDE), background=(10, 200, 30)),
            input=TensorSpec(name="pixels", dtype="float32", shape=(batch, 3, SIDE, SIDE)),
            output=TensorSpec(name="logits", dtype="float32", shape=(batch, len(LABELS))),
            max_batch=16,
            opset=20,
            operators={},
            precision="fp32",
            provenance=Provenance(
                checkpoint="tiny.safetensors",
                checkpoint_sha256="0" * 64,
                weights="raw",
                tools={},
                created=datetime(2026, 1, 1, tzinfo=UTC),
            ),
            files=files,
        )

    destination.parent.mkdir(parents=True, exist_ok=True)
    with writing_bundle(destination) as draft:
        (draft.folder / "model.onnx").write_bytes(model.SerializeToString())
        draft.finish(manifest)
    return destination


def picture(seed: int, side: int = 24) -> Image.Image:
    """A picture of its own for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, format: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()


@contextlib.contextmanager
def running(*bundles: Path, options: tuple[str, ...] = ()) -> Iterator[Server]:
    """A server in a process of its own, on a free port."""
    command = [sys.executable, "-m", "gaussport", "serve", *map(str, bundles), "--port", "0", "--threads", "1", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            assert process.stderr is not None
            pytest.fail(f"the server did not start: {process.stderr.read()}")
        yield Server(line.rpartition(" on ")[2].strip(), process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


class Fuzzed:
    """An application in this process, for fuzzers. A request that is not answered in time is a TimeoutError."""

    hang_s = 30

    def __init__(self, http: httpx.AsyncClient, runner: asyncio.Runner) -> None:
        self._http = http
        self._runner = runner

    def post(self, path: str, content: bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with asyncio.timeout(self.hang_s):
                return await self._http.post(path, content=content, headers=dict(headers or {}))

        return self._runner.run(ask())

    @staticmethod
    def check_refusal(response: httpx.Response) -> None:
        """A refusal is a 4xx in our form: one sentence, a code that has this status, the request's id."""
        content = response.json()
        assert 400 <= response.status_code < 500, response.text
        assert set(content) == {"error", "code", "request_id"}
        assert STATUS[content["code"]] == response.status_code
        assert content["request_id"] == response.headers["x-request-id"]
        assert 0 < len(content["error"]) < 400
        assert content["error"].isprintable()


@pytest.fixture(scope="session")
def fuzzed(tiny: Path) -> Iterator[Fuzzed]:
    limits = Settings(threads=1, decode_threads=1, max_delay_ms=0.0, max_pixels=200_000, max_body_mb=1.0)
    app = build_app([tiny], limits)
    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://local")
        try:
            yield Fuzzed(http, runner)
        finally:
            runner.run(http.aclose())
            runner.run(lifespan.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("bundles") / "tiny")


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("bundles") / "slow", name="slow", slow_loops=60)


@pytest.fixture(scope="session")
def server(tiny: Path) -> Iterator[Server]:
    """One server for all tests that do not change it."""
    with running(tiny, options=("--max-body-mb", "2", "--max-images", "32")) as started:
        yield started


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.http() as client:
        yield client


@pytest.fixture
def make_picture() -> Callable[..., Image.Image]:
    return picture


@pytest.fixture
def encode() -> Callable[..., bytes]:
    return encoded


@pytest.fixture
def write_bundle() -> Callable[..., Path]:
    return write_tiny


@pytest.fixture(scope="session")
def run_server() -> Callable[..., contextlib.AbstractContextManager[Server]]:
    return running
