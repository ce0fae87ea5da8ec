"""Ways to run one model: each gives a function without arguments that runs one batch and returns logits."""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx.inliner import inline_local_functions

from benchmarks.models import subjects
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.providers import session_options

Run = Callable[[], NDArray[np.float32]]
BACKENDS = ("ours", "plain", "eager", "compile", "openvino")


def available() -> list[str]:
    return [name for name in BACKENDS if name != "openvino" or find_spec("openvino")]


def prepared(backend: str, family: str, size: str, side: int, batch: int, threads: int) -> Run:
    """One run of `backend`, ready to be called; compiled and warm where that is what it does."""
    pixels = np.random.default_rng(0).standard_normal((batch, 3, side, side), dtype=np.float32)
    if backend in ("ours", "plain"):
        return _onnx(getattr(subjects, backend)(family, size, side), pixels, threads)
    if backend == "openvino":
        return _openvino(inlined(subjects.ours(family, size, side)), pixels, threads)
    return _torch(backend, family, size, side, pixels, threads)


def _onnx(model: bytes, pixels: NDArray[np.float32], threads: int) -> Run:
    session = onnxruntime.InferenceSession(model, session_options(threads), providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: pixels}
    return lambda: session.run(None, feed)[0]  # type: ignore[no-any-return]


def _openvino(model: bytes, pixels: NDArray[np.float32], threads: int) -> Run:
    """Our export with its functions inlined, which serves OpenVINO better than the plain one; in float32 like the others."""
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(model), "CPU", options).create_infer_request()
    return lambda: request.infer([pixels])[0]  # type: ignore[no-any-return]


def inlined(model: bytes) -> bytes:
    whole: onnx.ModelProto = inline_local_functions(onnx.load_from_string(model))
    return whole.SerializeToString()


def _torch(backend: str, family: str, size: str, side: int, pixels: NDArray[np.float32], threads: int) -> Run:
    torch.set_num_threads(threads)
    classifier = subjects.module(family, size, side)
    call = torch.compile(classifier) if backend == "compile" else classifier
    tensor = torch.from_numpy(pixels)

    def run() -> NDArray[np.float32]:
        with torch.inference_mode():
            return call(tensor).numpy()  # type: ignore[no-any-return]

    run()
    return run
