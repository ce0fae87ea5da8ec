"""Which layers leave a format's range: by their weights, which are known, and by their activations, which are measured."""

from collections.abc import Iterable

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from gaussport.export.inputs import Inputs
from gaussport.export.model_file import serialize
from gaussport.export.precision.formats import FLOAT32, Format
from gaussport.export.precision.layers import layers
from gaussport.export.precision.taps import with_peaks
from gaussport.export.session import Session

HEADROOM = 2
"""Other pictures than those that were run may reach further, by this factor at least."""


def overflowing(model: onnx.ModelProto, format: Format, batches: Iterable[Inputs]) -> dict[str, str]:
    """The layers of a float32 model that cannot be in `format`, and why: a weight is beyond the format's end, or a number
    that is read or made while `batches` run comes within `HEADROOM` of it or is not finite."""
    found = layers(gs.import_onnx(model))
    reasons = {name: reason for name, nodes in found.items() if (reason := _weight(nodes, format))}
    tensors = {name: _variables(nodes) for name, nodes in found.items() if name not in reasons}
    peaks = _peaks(model, sorted({tensor for names in tensors.values() for tensor in names}), batches)
    for layer, names in tensors.items():
        for name in names:
            if not peaks[name] * HEADROOM <= format.largest:
                reasons[layer] = _beyond(f"tensor {name}", peaks[name], format)
                break
    return reasons


def _weight(nodes: list[gs.Node], format: Format) -> str | None:
    for node in nodes:
        for tensor in node.inputs:
            if isinstance(tensor, gs.Constant) and tensor.dtype == FLOAT32 and tensor.values.size:
                peak = float(np.abs(tensor.values).max())
                if not peak <= format.largest:
                    return _beyond(f"weight {tensor.name}", peak, format)
    return None


def _beyond(what: str, peak: float, format: Format) -> str:
    return f"its {what} reaches {peak:.3g} and {format.long_name} ends at {format.largest:.5g}"


def _variables(nodes: list[gs.Node]) -> list[str]:
    tensors = (tensor for node in nodes for tensor in (*node.inputs, *node.outputs))
    return [tensor.name for tensor in tensors if isinstance(tensor, gs.Variable) and tensor.dtype == FLOAT32]


def _peaks(model: onnx.ModelProto, names: list[str], batches: Iterable[Inputs]) -> dict[str, float]:
    """The largest magnitude of each tensor over all batches; NaN if it was ever NaN."""
    peaks = np.zeros(len(names))
    if not names:
        return {}
    session = Session(serialize(with_peaks(model, names)))
    for inputs in batches:
        peaks = np.maximum(peaks, np.asarray(session.run_all(inputs, session.outputs), dtype=np.float64))  # NaN stays
    return dict(zip(names, peaks.tolist(), strict=True))
