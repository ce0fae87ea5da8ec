"""Write `explain.onnx` beside a `model.onnx`: the part of a model that is appended to it.

Two protobuf messages one behind the other are one message with the fields of both, lists one behind the other. So
`model.onnx` and `explain.onnx`, joined byte by byte, are a complete ONNX model: the same graph, the same weights, and
further nodes and outputs. Nothing is stored twice, and the logits are those of `model.onnx` because its graph computes them.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from torch import nn

from gaussport.export.bundle.manifest import EXPLAIN_FILE
from gaussport.export.explanation.graph import explaining
from gaussport.export.model_file import ModelFile, serialize
from gaussport.models.attention import Interpretable


def write_explanation(folder: Path, written: ModelFile, constants: Mapping[str, NDArray[np.float32]]) -> bool:
    """Write `explain.onnx` of the model that was written to `folder`. Returns whether there is anything to explain: a model
    without our operators gets no such file."""
    model = onnx.load_model_from_string(written.graph)
    addition = explaining(model, constants, hashlib.sha256(written.graph).hexdigest())
    if addition is None:
        return False
    (folder / EXPLAIN_FILE).write_bytes(serialize(addition))
    return True


def constants_of(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """What the attention layers of a module tell of themselves, by `path/name`."""
    return {
        f"{path}/{name}": np.asarray(tensor.detach().cpu().float().numpy())
        for path, part in module.named_modules()
        if isinstance(part, Interpretable)
        for name, tensor in part.constants().items()
    }
