"""The cast pass: chosen nodes compute in a narrow format, all others in float32, and every change of type is a Cast.

The graph that comes out is strongly typed: a builder reads each layer's precision from it and needs no flags. Input and
output stay float32.
"""

from collections.abc import Collection

import numpy as np
import onnx_graphsurgeon as gs

from gaussport.errors import ExportError
from gaussport.export.precision.formats import FLOAT32, Format
from gaussport.export.precision.layers import SHAPING, layers


def narrow(graph: gs.Graph, format: Format, keep: Collection[str] = ()) -> None:
    """Give every layer but those in `keep` to `format`, in place. The graph must be float32 and in topological order."""
    nested = [node.name for node in graph.nodes if any(isinstance(value, gs.Graph) for value in node.attrs.values())]
    if nested:
        raise ExportError(f"{nested[0]} holds a graph of its own, whose types cannot be narrowed: use --precision fp32")
    chosen = {id(node) for name, nodes in layers(graph).items() if name not in keep for node in nodes}
    casts = _Casts(graph, format)
    for node in list(graph.nodes):
        if node.op in SHAPING and not node.domain:
            wanted = next((t.dtype for t in node.inputs if _is_float(t, format)), FLOAT32)
        else:
            wanted = format.numpy if id(node) in chosen else FLOAT32
        node.inputs = [casts.as_type(tensor, wanted) if _is_float(tensor, format) else tensor for tensor in node.inputs]
        for tensor in node.outputs:
            if _is_float(tensor, format):
                tensor.dtype = wanted
    casts.restore_outputs()
    casts.reuse_names()
    graph.cleanup().toposort()


class _Casts:
    """Each tensor in each type, made once."""

    def __init__(self, graph: gs.Graph, format: Format) -> None:
        self._graph, self._format = graph, format
        self._made: dict[str, gs.Tensor] = {}
        self._constants: dict[str, gs.Constant] = {}

    def as_type(self, tensor: gs.Tensor, wanted: np.dtype[np.generic]) -> gs.Tensor:
        if tensor.dtype == wanted:
            return tensor
        short = self._format.name if wanted == self._format.numpy else "fp32"
        name = f"{tensor.name}.{short}"
        if name not in self._made:
            self._made[name] = self._constant(tensor, name) if isinstance(tensor, gs.Constant) else self._cast(tensor, name)
        return self._made[name]

    def _constant(self, tensor: gs.Constant, name: str) -> gs.Constant:
        with np.errstate(over="ignore"):  # whoever chose the layers has looked for weights that overflow
            narrow = gs.Constant(name, tensor.values.astype(self._format.numpy))
        self._constants[tensor.name] = narrow
        return narrow

    def _cast(self, tensor: gs.Variable, name: str) -> gs.Variable:
        wide = tensor.dtype == self._format.numpy
        result = gs.Variable(name, dtype=FLOAT32 if wide else self._format.numpy, shape=tensor.shape)
        to = 1 if wide else self._format.onnx
        self._graph.nodes.append(gs.Node("Cast", f"{name}/Cast", attrs={"to": to}, inputs=[tensor], outputs=[result]))
        return result

    def restore_outputs(self) -> None:
        """A graph output that has become narrow keeps its name and its float32."""
        for index, tensor in enumerate(self._graph.outputs):
            if tensor.dtype == self._format.numpy:
                name = tensor.name
                tensor.name = f"{name}.{self._format.name}"
                wide = self._cast(tensor, f"{name}.fp32")
                wide.name = name
                self._graph.outputs[index] = wide

    def reuse_names(self) -> None:
        """A constant that is no longer read in float32 gives its name, which is PyTorch's, to its narrow twin."""
        wide = {t.name for node in self._graph.nodes for t in node.inputs if isinstance(t, gs.Constant)}
        for name, narrow in self._constants.items():
            if name not in wide:
                narrow.name = name


def _is_float(tensor: gs.Tensor, format: Format) -> bool:
    return tensor.dtype is not None and np.dtype(tensor.dtype) in (FLOAT32, format.numpy)
