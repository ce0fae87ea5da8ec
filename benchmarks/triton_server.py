"""A real Triton with a bundle's model behind its Python backend, for `triton_compare.py`.

    pip install --no-deps --target build/triton nvidia-pytriton==0.7.0

brings the server as a binary, without CUDA: it is started as it is, and nothing of that package is imported.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

import gaussport
from gaussport.export.bundle.manifest import Manifest
from gaussport.export.bundle.store import open_bundle

START_S = 60
_MODEL = """
import sys
sys.path[:0] = {paths!r}  # the backend's Python reads no PYTHONPATH
import numpy as np
import triton_python_backend_utils as triton
from gaussport.export.bundle.store import open_bundle
from gaussport.serving.runtime import Runtime

class TritonPythonModel:
    def initialize(self, args):
        self.runtime = Runtime(open_bundle({bundle!r}), threads=1)

    def execute(self, requests):
        # By DLPack: this backend's own way to numpy was built for numpy 1.
        rows = [np.from_dlpack(triton.get_input_tensor_by_name(request, {input!r})) for request in requests]
        logits = self.runtime.run(np.concatenate(rows))
        parts = np.split(logits, np.cumsum([len(each) for each in rows])[:-1])
        return [triton.InferenceResponse([triton.Tensor.from_dlpack({output!r}, part)]) for part in parts]
"""
_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: {max_batch}
input {{ name: "{input}" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ {dims} ] }}
output {{ name: "{output}" data_type: TYPE_FP32 dims: [ {labels} ] label_filename: "labels.txt" }}
dynamic_batching {{ max_queue_delay_microseconds: 2000 }}
"""


class Triton:
    """A Triton that serves the bundle's model under its name, version 1. Its log is folder/triton.log."""

    def __init__(self, bundle: Path, installed: Path, folder: Path, models: Path | None = None) -> None:
        """`models` is a model repository to serve in place of the plain one that is written for the bundle."""
        server = _install(installed, folder / "server")
        if models is None:
            models = folder / "models"
            _write_model(open_bundle(bundle).manifest, bundle.resolve(), models)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "triton.log"
        self._command = [
            str(server / "bin/tritonserver"),
            *("--model-repository", str(models), "--backend-directory", str(server / "backends")),
            *(
                "--model-control-mode",
                "explicit",
                "--load-model",
                "*",
                "--allow-grpc",
                "false",
                "--allow-metrics",
                "false",
                "--exit-timeout-secs",
                "5",
            ),
            *("--http-address", "127.0.0.1", "--http-port", str(port)),
        ]
        libraries = [str(installed / "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR")]
        self._environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.ensure_running()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ensure_running(self) -> bool:
        """Start it, if it is not running. Returns whether it was."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1 if self._answers() else 10)  # one that crashes writes its last words first
            if self._process.poll() is None:
                return True
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
        give_up = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"Triton did not start: {self._log.read_text(errors='replace')[-9000:]}")
            time.sleep(0.2)
        return False

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/v2/health/ready", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


def _install(installed: Path, server: Path) -> Path:
    """The server's own files, with the backend's program for this Python where it looks for it."""
    source = installed / "pytriton/tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(source, server, ignore=shutil.ignore_patterns("python_backend_stubs"))
    stub = source / "python_backend_stubs" / version / "triton_python_backend_stub"
    for program in (shutil.copy(stub, server / "backends/python"), server / "bin/tritonserver"):
        Path(program).chmod(0o755)
    return server


def _write_model(manifest: Manifest, bundle: Path, models: Path) -> None:
    folder = models / manifest.name
    (folder / "1").mkdir(parents=True)
    names = {"input": manifest.input.name, "output": manifest.output.name}
    paths = [str(Path(gaussport.__file__).parents[1]), sysconfig.get_path("purelib")]
    (folder / "1/model.py").write_text(_MODEL.format(bundle=str(bundle), paths=paths, **names))
    (folder / "labels.txt").write_text("\n".join(manifest.labels))
    dims = ", ".join(map(str, manifest.preprocessing.tensor_shape))
    facts = {"name": manifest.name, "max_batch": manifest.max_batch, "dims": dims, "labels": len(manifest.labels)}
    (folder / "config.pbtxt").write_text(_CONFIG.format(**names, **facts))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
