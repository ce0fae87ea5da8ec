"""What a PyTorch module's attention looks at, from the operands that its operators are called with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gaussport.export.evaluation import evaluating
from gaussport.export.explanation.graph import explanations
from gaussport.plugins import DOMAIN, operators
from gaussport.plugins.explanation import Array


def explained_in_pytorch(module: nn.Module, inputs: Sequence[Tensor]) -> list[dict[str, Array]]:
    """For each call of an operator, in the order of the run, what `explain.onnx` tells of a layer by its names."""
    calls = _Calls()
    with evaluating(module), calls:
        module(*inputs)
    return [explanations()[name].expected(operands, attributes) for name, operands, attributes in calls.seen]


class _Calls(TorchDispatchMode):
    """Lets everything pass and keeps, of our operators, name, operands in float64 and attributes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[str, list[Array | None], dict[str, Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        for operator in operators():
            if func.namespace == DOMAIN and func._schema.name == operator.torch_name and operator.name in explanations():
                named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | given
                operands = [_array(named.get(operand.name)) for operand in operator.operands]
                attributes = {name: named.get(name, default) for name, default in operator.attributes}
                self.seen.append((operator.name, operands, attributes))
        return func(*args, **given)


def _array(tensor: Tensor | None) -> Array | None:
    return None if tensor is None else np.asarray(tensor.detach().to(torch.float64).cpu().numpy())
