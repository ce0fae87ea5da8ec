"""The servers that are compared: how each is started, and how the same tensor and the same JPEG are sent to it."""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from load import Post, closed_loop
from numpy.typing import NDArray
from processes import family, tell

HERE = Path(__file__).parent
START_S = 90.0
OCTETS = ("Content-Type: application/octet-stream",)
JSON = ("Content-Type: application/json",)


@dataclass(frozen=True)
class Bodies:
    """What is sent: JPEG files, and the tensors [n, C, H, W] that they become."""

    name: str
    jpegs: list[bytes]
    tensors: NDArray[np.float32]


Posts = dict[str, list[Post]]


@dataclass(frozen=True)
class Server:
    """One of them. `command` gets the port and the bundle."""

    name: str
    command: Callable[[Path, int], list[str]]
    posts: Callable[[Bodies], Posts]
    installed: Callable[[], bool] = lambda: True


def gaussport() -> Server:
    def command(bundle: Path, port: int) -> list[str]:
        words = ("serve", str(bundle), "--port", str(port), "--threads", "1", "--decode-threads", "1")
        return [sys.executable, "-m", "gaussport", *words]

    def posts(bodies: Bodies) -> Posts:
        return {
            "tensor": [v2_tensor(bodies.name, row) for row in bodies.tensors],
            "JPEG": [Post("/v1/classify", jpeg, ("Content-Type: image/jpeg",)) for jpeg in bodies.jpegs],
        }

    return Server("gaussport", command, posts)


def rivals(python: Path) -> list[Server]:
    """Those that run in the environment of this Python."""

    def program(file: str) -> Callable[[Path, int], list[str]]:
        return lambda bundle, port: [str(python), str(HERE / "rivals" / file)]

    def bentoml(bundle: Path, port: int) -> list[str]:
        words = ("serve", "bentoml_service:Classifier", "--port", str(port), "--host", "127.0.0.1")
        return [str(python), "-m", "bentoml", *words, "--working-dir", str(HERE / "rivals")]

    def has(package: str) -> Callable[[], bool]:
        words = [str(python), "-c", f"import {package}"]
        return lambda: python.exists() and subprocess.call(words, stderr=subprocess.DEVNULL) == 0

    return [
        Server("FastAPI + batcher", program("fastapi_batcher.py"), _raw, has("fastapi")),
        Server("mosec", program("mosec_server.py"), _raw, has("mosec")),
        Server("LitServe", program("litserve_server.py"), _litserve, has("litserve")),
        Server("BentoML", bentoml, _bentoml, has("bentoml")),
    ]


def _raw(bodies: Bodies) -> Posts:
    return {
        "tensor": [Post("/tensor", row.tobytes(), OCTETS) for row in bodies.tensors],
        "JPEG": [Post("/jpeg", jpeg, OCTETS) for jpeg in bodies.jpegs],
    }


def _litserve(bodies: Bodies) -> Posts:
    def post(kind: str, content: bytes) -> Post:
        return Post("/predict", json.dumps({kind: base64.b64encode(content).decode()}).encode(), JSON)

    return {
        "tensor": [post("tensor", row.tobytes()) for row in bodies.tensors],
        "JPEG": [post("jpeg", jpeg) for jpeg in bodies.jpegs],
    }


def _bentoml(bodies: Bodies) -> Posts:
    def post(path: str, content: bytes) -> Post:
        return Post(path, json.dumps({"bodies": [base64.b64encode(content).decode()]}).encode(), JSON)

    return {
        "tensor": [post("/tensor", row.tobytes()) for row in bodies.tensors],
        "JPEG": [post("/jpeg", jpeg) for jpeg in bodies.jpegs],
    }


def v2_picture(name: str, jpeg: bytes) -> Post:
    """As Triton takes it from `gaussport triton-repository`: the file's bytes are a row."""
    return _v2(name, "image", "UINT8", (1, len(jpeg)), jpeg)


def v2_tensor(name: str, row: NDArray[np.float32]) -> Post:
    """One row of pixels."""
    return _v2(name, "pixels", "FP32", (1, *row.shape), row.tobytes())


def _v2(name: str, tensor: str, datatype: str, shape: tuple[int, ...], content: bytes) -> Post:
    """The Open Inference Protocol with binary tensors both ways."""
    parameters = {"binary_data_size": len(content)}
    given = {"name": tensor, "shape": list(shape), "datatype": datatype, "parameters": parameters}
    head = json.dumps({"inputs": [given], "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]}).encode()
    return Post(f"/v2/models/{name}/infer", head + content, (*OCTETS, f"Inference-Header-Content-Length: {len(head)}"))


@contextlib.contextmanager
def running(
    server: Server, bundle: Path, posts: Posts, core: int, max_batch: int, log: Path
) -> Iterator[tuple[int, int, float]]:
    """The server on one core, its first answers given: process, port, and seconds from its start to the first answer."""
    port = free_port()
    environment = {
        **os.environ,
        "BUNDLE": str(bundle.resolve()),
        "PORT": str(port),
        "MAX_BATCH": str(max_batch),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{HERE.parents[1] / 'src'}{os.pathsep}{HERE / 'rivals'}",
        "BENTOML_DO_NOT_TRACK": "1",
    }
    began = time.monotonic()
    with log.open("ab") as words:
        process = subprocess.Popen(
            server.command(bundle.resolve(), port),
            env=environment,
            stdout=words,
            stderr=words,
            preexec_fn=lambda: os.sched_setaffinity(0, [core]),
        )
    try:
        wait_for(port, posts, process, log)
        yield process.pid, port, time.monotonic() - began
    finally:
        all_of_it = family(process.pid)
        tell(all_of_it, signal.SIGCONT)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        tell(all_of_it, signal.SIGKILL)  # some leave their workers behind
        process.wait()


def wait_for(port: int, posts: Mapping[str, list[Post]], process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when both kinds of body are answered. SystemExit with the server's words when it ends or takes too long."""
    give_up = time.monotonic() + START_S
    for kind in posts.values():
        while True:
            try:
                closed_loop(port, kind[:1], 1, 1)
                break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > give_up:
                    raise SystemExit(f"{log}: {error}\n{log.read_text(errors='replace')[-3000:]}") from None
                time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
