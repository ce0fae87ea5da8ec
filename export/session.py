"""ONNX Runtime on the CPU, as proofs run it: quiet, deterministic, on as many threads as PyTorch has."""

import numpy as np
import torch
from numpy.typing import NDArray

from gaussport.errors import ExportError
from gaussport.onnx_runtime import onnxruntime

_PROVIDER = "CPUExecutionProvider"
_FATAL = 4  # ONNX Runtime's log severity; what is wrong arrives as an exception, once


class Session:
    """A model, its bytes or its path, that runs: pixels [batch, C, height, width] → logits [batch, classes]."""

    def __init__(self, model: bytes | str) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=[_PROVIDER])
        except Exception as error:  # its exceptions share no base class of their own
            raise ExportError(f"ONNX Runtime {onnxruntime.__version__} refuses the model: {first_line(error)}") from error
        if self._session.get_providers() != [_PROVIDER]:
            raise ExportError(f"ONNX Runtime chose {self._session.get_providers()} although {_PROVIDER} was asked for")
        self.input = self._session.get_inputs()[0].name
        self.output = self._session.get_outputs()[0].name

    def run(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        try:
            (logits,) = self._session.run([self.output], {self.input: pixels})
        except Exception as error:  # as above
            raise ExportError(f"ONNX Runtime fails at batch {len(pixels)}: {first_line(error)}") from error
        return np.asarray(logits)


def first_line(error: Exception) -> str:
    """The first line of a message, which names the fault; ONNX Runtime goes on with its own source lines."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
