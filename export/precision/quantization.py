"""Q/DQ: linear layers read int8 activations and int8 weights, everything else stays float32.

A quantizing and a dequantizing node around a tensor tell any builder that it may multiply integers there; the pair itself is
the definition of what the integers mean. Both are symmetric (zero is 0), which TensorRT requires, the weights with a scale
for each output channel.
"""

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from gaussport.export.precision.formats import FLOAT32
from gaussport.export.precision.layers import LINEAR, layers

INTEGERS, SCALES = ".int8", ".scales"
"""What the names of a quantized weight and of its scales end with, behind the weight's own name."""

LARGEST = 127
"""int8 is used from −127 to 127, so that a number and its negative are equally well shown."""


def quantizable(graph: gs.Graph) -> dict[str, gs.Node]:
    """The linear layers with constant weights, by name; the head, whose logits decide, is not among them."""
    found = {}
    for name, nodes in layers(graph).items():
        for node in nodes:
            if node.op in LINEAR[:2] and not node.domain and _is_weight(node.inputs[1]):
                found[name] = node
    return found


def quantize(graph: gs.Graph, ranges: Mapping[str, float], keep: Collection[str] = ()) -> None:
    """Quantize every linear layer but those in `keep`, in place. `ranges` has the magnitude that int8 shall cover of each
    layer's input, by the tensor's name."""
    zero = gs.Constant("int8.zero", np.zeros((), np.int8))
    readers: Counter[str] = Counter()
    for name, node in quantizable(graph).items():
        if name in keep:
            continue
        value, weight = node.inputs[:2]
        scale = _stepped(np.float32(ranges[value.name] / LARGEST or 1.0), readers[value.name])
        node.inputs[0] = _shown(graph, value, gs.Constant(f"{name}.scale", np.asarray(scale)), zero, name)
        node.inputs[1] = _dequantized_weight(graph, weight, axis=0 if node.attrs.get("transB") else weight.values.ndim - 1)
        readers[value.name] += 1
    graph.cleanup().toposort()


def scales_of(weight: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """One scale for each output channel: the largest magnitude is 127 of them; 1 for a channel of zeros."""
    others = tuple(a for a in range(weight.ndim) if a != axis)
    peaks = np.abs(weight).max(axis=others)
    return np.where(peaks > 0, peaks / LARGEST, 1.0).astype(np.float32)


def _shown(graph: gs.Graph, value: gs.Variable, scale: gs.Constant, zero: gs.Constant, layer: str) -> gs.Variable:
    """A tensor as one layer reads it, through int8."""
    integers = gs.Variable(f"{layer}.int8", np.dtype(np.int8), value.shape)
    shown = gs.Variable(f"{layer}.shown", FLOAT32, value.shape)
    pair = (("QuantizeLinear", value, integers), ("DequantizeLinear", integers, shown))
    for op, read, made in pair:
        graph.nodes.append(gs.Node(op, f"{layer}/{op}", inputs=[read, scale, zero], outputs=[made]))
    return shown


def _stepped(scale: np.float32, steps: int) -> np.float32:
    """The scale, a last digit larger for each further layer that reads the same tensor: ONNX Runtime merges pairs that are
    equal, and a pair that several layers read it fuses into none of them."""
    for _ in range(steps):
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale


def _dequantized_weight(graph: gs.Graph, weight: gs.Constant, axis: int) -> gs.Variable:
    values = weight.values
    scales = scales_of(values, axis)
    shape = [-1 if a == axis else 1 for a in range(values.ndim)]
    integers = np.clip(np.rint(values / scales.reshape(shape)), -LARGEST, LARGEST).astype(np.int8)
    inputs = [
        gs.Constant(f"{weight.name}{INTEGERS}", integers),
        gs.Constant(f"{weight.name}{SCALES}", scales),
        gs.Constant(f"{weight.name}.zeros", np.zeros(len(scales), np.int8)),
    ]
    shown = gs.Variable(f"{weight.name}.shown", FLOAT32, values.shape)
    name = f"{weight.name}/DequantizeLinear"
    graph.nodes.append(gs.Node("DequantizeLinear", name, attrs={"axis": axis}, inputs=inputs, outputs=[shown]))
    return shown


def _is_weight(tensor: gs.Tensor) -> bool:
    return isinstance(tensor, gs.Constant) and tensor.dtype == FLOAT32 and tensor.values.ndim == 2
