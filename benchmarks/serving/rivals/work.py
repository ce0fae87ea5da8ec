"""What every rival does with a request: the same ONNX file, session options, decoder and preprocessing as gaussport's."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.store import open_bundle
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import to_pixels
from gaussport.onnx_runtime import onnxruntime

MAX_BATCH = int(os.environ["MAX_BATCH"])
MAX_DELAY_S = 0.002
BUNDLE = Path(os.environ["BUNDLE"])
PORT = int(os.environ["PORT"])
SPEC = open_bundle(BUNDLE).manifest.preprocessing


class Model:
    """The session, on one thread that does not spin."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(BUNDLE / "model.onnx"), options, providers=["CPUExecutionProvider"])

    def run(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits [n, K] of pixels [n, C, H, W]."""
        return np.asarray(self._session.run(None, {"pixels": rows})[0])


def row_of_tensor(body: bytes) -> NDArray[np.float32]:
    return np.frombuffer(body, np.float32).reshape(SPEC.tensor_shape)


def row_of_jpeg(body: bytes) -> NDArray[np.float32]:
    return to_pixels(decode(body, SPEC.background).rgb, SPEC)


def best_of(logits: NDArray[np.float32]) -> dict[str, Any]:
    """The five best classes of one row, as gaussport's answer has them."""
    powers = np.exp(logits - logits.max())
    shares = powers / powers.sum()
    return {"predictions": [{"index": int(i), "probability": float(shares[i])} for i in np.argsort(-shares)[:5]]}


def json_of(logits: NDArray[np.float32]) -> bytes:
    return json.dumps(best_of(logits)).encode()
