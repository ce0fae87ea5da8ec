"""`step.onnx`: a causal model that reads a stream chunk by chunk, in standard operators alone.

    tokens [batch, chunk], state.PART…  ──▶  logits [batch, classes], next.PART…

It is traced from the module's own `step`. Weights that lie beside `model.onnx` are shared with it, never stored twice.
"""

import copy
from pathlib import Path
from types import MethodType
from typing import TypeGuard

import onnx
from onnx import TensorProto
from torch import Tensor, nn

from gaussport.export.bundle.manifest import STEP_FILE, TensorSpec
from gaussport.export.bundle.stream import GIVEN, LEFT, StreamSpec
from gaussport.export.model_file import ModelFile, raw_bytes, serialize
from gaussport.export.onnx_export import BATCH, OUTPUT, export_onnx
from gaussport.export.sequence.probes import TOKENS
from gaussport.models.sequence import SequenceClassifier

CHUNK = "chunk"
"""The axis of a chunk's tokens, which has any size."""


def streams(module: nn.Module) -> TypeGuard[SequenceClassifier]:
    """Whether the module reads streams: a causal sequence classifier whose attention keeps a memory."""
    return isinstance(module, SequenceClassifier) and module.config.causal and module.config.family == "gma"


def stream_spec(module: SequenceClassifier) -> StreamSpec:
    """What a stream of the module keeps between two chunks."""
    return StreamSpec.of(tuple(_spec(name, tensor) for name, tensor in module.initial_state(1).items()))


def export_step(module: SequenceClassifier, opset: int) -> onnx.ModelProto:
    """The ONNX model of the module's `step`.

    Raises:
        ExportError: it cannot be traced for every batch and chunk.
    """
    state = stream_spec(module).state
    takes = [TensorSpec(name=TOKENS, dtype="int64", shape=(BATCH, CHUNK))]
    takes += [part.model_copy(update={"name": f"{GIVEN}{part.name}"}) for part in state]
    gives = [OUTPUT, *(f"{LEFT}{part.name}" for part in state)]
    return export_onnx(_stepping(module, [part.name for part in state]), takes, opset, gives)


def write_step(model: onnx.ModelProto, folder: Path, written: ModelFile) -> ModelFile:
    """Write `step.onnx` beside the model that was `written` to the folder; returns what is on the disk then."""
    _share(model, written)
    (folder / STEP_FILE).write_bytes(serialize(model))
    return ModelFile((folder / STEP_FILE).read_bytes(), written.beside)


def _stepping(module: SequenceClassifier, parts: list[str]) -> SequenceClassifier:
    """The same module, weights and names, whose forward is its step, with the state's parts one by one."""
    twin = copy.copy(module)

    def forward(self: SequenceClassifier, tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        logits, left = self.step(tokens, dict(zip(parts, state, strict=True)))
        return (logits, *(left[part] for part in parts))

    twin.forward = MethodType(forward, twin)  # type: ignore[method-assign]
    return twin


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec.model_validate({"name": name, "dtype": dtype, "shape": (BATCH, *tensor.shape[1:])})


def _share(model: onnx.ModelProto, written: ModelFile) -> None:
    """Point to the bytes beside the other model wherever one of its tensors has the same name, type and numbers."""
    other = onnx.load_model_from_string(written.graph)
    outside = {t.name: t for t in other.graph.initializer if t.data_location == TensorProto.EXTERNAL}
    for tensor in model.graph.initializer:
        twin = outside.get(tensor.name)
        if twin is None or (twin.data_type, list(twin.dims)) != (tensor.data_type, list(tensor.dims)):
            continue
        place = {entry.key: entry.value for entry in twin.external_data}
        start, size = int(place["offset"]), int(place["length"])
        if bytes(memoryview(written.beside[place["location"]])[start : start + size]) == raw_bytes(tensor):
            tensor.ClearField("raw_data")
            tensor.CopyFrom(twin)
