"""Count how often a module calls our operators, by watching one real run: the graph must have one node for each call."""

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gaussport.plugins import DOMAIN, operators


def custom_calls(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Counter[str]:
    """ONNX names of the operators that `module` calls for these inputs, and how often."""
    names = {operator.folder: operator.name for operator in operators()}
    watcher = _Watcher()
    with watcher:
        module(*inputs)
    return Counter({names[folder]: number for folder, number in watcher.calls.items()})


class _Watcher(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == DOMAIN:
            self.calls[func._opname] += 1
        return func(*args, **(kwargs or {}))
