"""Call initializers what PyTorch calls them, also those that the exporter folded into a new constant."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gaussport.export.passes.scopes import module_path, unused

TRANSPOSED = ".T"
"""What the name of a parameter ends with when the graph holds its transpose (a Linear's weight under MatMul)."""


def name_initializers(model: ir.Model, parameters: Mapping[str, NDArray[np.generic]]) -> None:
    """A parameter keeps its name, its transpose takes `<parameter>.T`, and what was computed from several parameters or
    from none takes the path of the first module that reads it: `blocks.0.attn.mul_82`."""
    graph = model.graph
    transposes: dict[tuple[tuple[int, ...], bytes], list[str]] = {}
    for name, tensor in parameters.items():
        if tensor.ndim == 2 and name not in graph.initializers:
            transposes.setdefault(_key(tensor.T), []).append(name)
    taken = {value.name for value in graph.inputs if value.name}
    for node in graph.all_nodes():
        taken.update(value.name for value in (*node.inputs, *node.outputs) if value is not None and value.name)
    for value in list(graph.initializers.values()):
        if value.name in parameters or value.const_value is None:
            continue
        matches = transposes.get(_key(value.const_value.numpy()), [])
        assert value.name is not None
        if matches:
            value.name = unused(matches.pop(0) + TRANSPOSED, taken)
        else:
            path = _first_reader(value)
            value.name = unused(f"{path}.{value.name}", taken) if path else value.name


def _key(tensor: NDArray[np.generic]) -> tuple[tuple[int, ...], bytes]:
    return tensor.shape, tensor.tobytes()


def _first_reader(value: ir.Value) -> str:
    readers = value.consumers()
    return module_path(readers[0]) if readers else ""
