"""Write `explain.onnx` beside a `model.onnx`: it is loaded like any model of two files, and its weights are model.onnx's.

model.onnx  ──explaining──▶ the same graph, with further outputs ──share_weights──▶ explain.onnx, which points into
                                                                                   model.onnx (and model.onnx.data)
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from torch import nn

from gaussport.export.bundle.manifest import EXPLAIN_FILE, MODEL_FILE
from gaussport.export.explanation.graph import explaining
from gaussport.export.explanation.sharing import share_weights
from gaussport.export.model_file import ModelFile, serialize
from gaussport.models.attention import Interpretable


def write_explanation(folder: Path, written: ModelFile, constants: Mapping[str, NDArray[np.float32]]) -> bool:
    """Write `explain.onnx` of the model that was written to `folder`. Returns whether there is anything to explain: a model
    without our operators gets no such file."""
    model = onnx.load_model_from_string(written.graph)
    explained = explaining(model, constants, hashlib.sha256(written.graph).hexdigest())
    if explained is None:
        return False
    share_weights(explained, MODEL_FILE, written.graph)
    (folder / EXPLAIN_FILE).write_bytes(serialize(explained))
    return True


def constants_of(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """What the attention layers of a module tell of themselves, by `path/name`."""
    return {
        f"{path}/{name}": np.asarray(tensor.detach().cpu().float().numpy())
        for path, part in module.named_modules()
        if isinstance(part, Interpretable)
        for name, tensor in part.constants().items()
    }
