"""A module that computes in PyTorch with the integers of its int8 export: weights rounded anew from its own numbers,
activations by the ranges that the graph states.

Beside float32 an int8 model is a rough copy, and a wrong weight hides in it. Beside this twin it is the same arithmetic:
they differ by halves that round the other way.
"""

import copy

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from gaussport.export.precision.quantization import LARGEST, scales_of

_QUANTIZE = "/QuantizeLinear"
_SMALLEST, _MOST = -128, 127  # what QuantizeLinear saturates at


def integer_twin(module: nn.Module, model: onnx.ModelProto) -> nn.Module | None:
    """A copy of the module whose linear layers are those of the int8 `model`; None when a layer that the graph quantizes is
    no linear layer of the module."""
    twin = copy.deepcopy(module)
    for layer, scale in _activation_scales(model).items():
        try:
            linear = twin.get_submodule(layer)
        except AttributeError:
            return None
        if not isinstance(linear, nn.Linear):
            return None
        weight = linear.weight.detach().numpy()
        scales = scales_of(weight, axis=0)[:, np.newaxis]
        integers = np.clip(np.rint(weight / scales), -LARGEST, LARGEST)
        linear.weight = nn.Parameter(torch.from_numpy((integers * scales).astype(np.float32)))
        linear.register_forward_pre_hook(_Shown(scale))
    return twin


class _Shown:
    """What a layer reads, through int8."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def __call__(self, _module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        value, *others = arguments
        return (torch.clamp(torch.round(value / self._scale), _SMALLEST, _MOST) * self._scale, *others)


def _activation_scales(model: onnx.ModelProto) -> dict[str, float]:
    """The scale of each quantized layer's input, by the layer's name."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear" and node.name.endswith(_QUANTIZE)]
    return {node.name.removesuffix(_QUANTIZE): float(numpy_helper.to_array(stored[node.input[1]])) for node in nodes}
