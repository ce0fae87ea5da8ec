"""The layers of a model by their PyTorch names, in the module and in its graph, so that both can be looked into.

A layer is a module, named by its path (`blocks.3.mlp.0`), or an operand or the result of one of our operators
(`blocks.3.attn, offset`). The graph's nodes carry the paths: what a module gives is what its last node gives.
"""

from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gaussport.export.evaluation import evaluating
from gaussport.plugins import DOMAIN, operators

Array = NDArray[np.float32]

_OPERATORS = {operator.name: operator for operator in operators()}
_BY_FOLDER = {operator.folder: operator for operator in operators()}


def graph_layers(graph: onnx.GraphProto) -> dict[str, str]:
    """The graph's value that holds each layer's output. Nodes without a path in their name belong to no layer."""
    values: dict[str, str] = {}
    for node in graph.node:
        path, slash, _ = node.name.partition("/")
        if node.domain == DOMAIN and node.op_type in _OPERATORS:
            operands = zip(_OPERATORS[node.op_type].operands, node.input, strict=False)
            values.update({f"{path}, {operand.name}": value for operand, value in operands if value})
            values[f"{path}, {node.op_type}"] = node.output[0]
        elif slash:
            for end in range(path.count(".") + 1):
                values[path.rsplit(".", end)[0]] = node.output[0]
    return values


@dataclass
class Observed:
    """What one run of a module gave: every layer's size in bytes, in the order of the run, and the outputs kept."""

    sizes: dict[str, int] = field(default_factory=dict)
    kept: dict[str, Array] = field(default_factory=dict)


def observe(module: nn.Module, inputs: tuple[Tensor, ...], keep: Container[str]) -> Observed:
    """Run the module on its inputs, each [batch, …], and keep the outputs of the layers in `keep`."""
    observed, paths = Observed(), [""]

    def record(name: str, value: object) -> None:
        if isinstance(value, Tensor) and name not in observed.sizes:
            observed.sizes[name] = value.numel() * 4  # compared in float32
            if name in keep:
                observed.kept[name] = np.asarray(value.detach().double().numpy())

    with evaluating(module), ExitStack() as hooks, _OperatorWatcher(lambda: paths[-1], record):
        for path, part in module.named_modules():
            if path:
                hooks.enter_context(_hooked(part, path, paths, record))
        module(*inputs)
    return observed


@contextmanager
def _hooked(part: nn.Module, path: str, paths: list[str], record: Callable[[str, object], None]) -> Iterator[None]:
    def leave(_module: nn.Module, _arguments: Any, output: object) -> None:
        paths.pop()
        record(path, output)

    handles = (part.register_forward_pre_hook(lambda *_: paths.append(path)), part.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _OperatorWatcher(TorchDispatchMode):
    """Records the operands and the result of each call of our operators."""

    def __init__(self, path: Callable[[], str], record: Callable[[str, object], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._path, self._record = path, record

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        operator = _BY_FOLDER.get(func._opname) if func.namespace == DOMAIN else None
        if operator is not None:
            for operand, value in zip(operator.operands, args, strict=False):
                self._record(f"{self._path()}, {operand.name}", value)
            self._record(f"{self._path()}, {operator.name}", result)
        return result


def exposing(model: onnx.ModelProto, values: list[str]) -> onnx.ModelProto:
    """A copy of the model that gives those values too. Large weights are shared only when they lie outside the file."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {output.name for output in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(values) if name not in known)
    return copy
