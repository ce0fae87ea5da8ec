"""ONNX Runtime on the CPU, as proofs run it: quiet, deterministic, on as many threads as PyTorch has."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gaussport.errors import ExportError
from gaussport.export.inputs import Array, Inputs, rows_of
from gaussport.export.model_file import ModelFile
from gaussport.onnx_runtime import onnxruntime

_PROVIDER = "CPUExecutionProvider"
_FATAL = 4  # ONNX Runtime's log severity; what is wrong arrives as an exception, once


class Session:
    """A model that runs: its inputs, each [batch, …] → logits [batch, classes].

    Files beside the model are handed over as bytes that were read and checked before: ONNX Runtime opens no path.
    """

    def __init__(self, model: bytes | ModelFile) -> None:
        file = model if isinstance(model, ModelFile) else ModelFile(model)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # a proof holds several sessions; an arena keeps what the largest batch took
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if file.beside:
            sizes = [memoryview(content).nbytes for content in file.beside.values()]
            options.add_external_initializers_from_files_in_memory(list(file.beside), list(file.beside.values()), sizes)
        try:
            self._session = onnxruntime.InferenceSession(file.graph, options, providers=[_PROVIDER])
        except Exception as error:  # its exceptions share no base class of their own
            raise ExportError(f"ONNX Runtime {onnxruntime.__version__} refuses the model: {first_line(error)}") from error
        if self._session.get_providers() != [_PROVIDER]:
            raise ExportError(f"ONNX Runtime chose {self._session.get_providers()} although {_PROVIDER} was asked for")
        self.inputs = [given.name for given in self._session.get_inputs()]
        self._halves = {given.name for given in self._session.get_inputs() if given.type == "tensor(float16)"}
        self.outputs = [output.name for output in self._session.get_outputs()]
        self.output = self.outputs[0]

    def run(self, inputs: Inputs | Array) -> NDArray[np.float32]:
        """The first output, as float32 whatever the graph computes in. An array alone is the model's first input."""
        return np.asarray(self.run_all(inputs, [self.output])[0]).astype(np.float32, copy=False)

    def run_all(self, inputs: Inputs | Array, outputs: Sequence[str]) -> list[Array]:
        """The outputs of those names."""
        named = inputs if isinstance(inputs, Mapping) else {self.inputs[0]: inputs}
        fed = {name: array.astype(np.float16) if name in self._halves else array for name, array in named.items()}
        try:
            return list(self._session.run(list(outputs), fed))
        except Exception as error:  # as above
            raise ExportError(f"ONNX Runtime fails at batch {rows_of(named)}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of a message, which names the fault; ONNX Runtime goes on with its own source lines."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
