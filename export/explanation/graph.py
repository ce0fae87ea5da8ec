"""What a model's graph needs to explain itself: one more node for each attention, whose outputs are looked at."""

import importlib
import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from itertools import count, product
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from gaussport.export.bundle.explanation import METADATA_KEY
from gaussport.plugins import DOMAIN, Operator, operators
from gaussport.plugins.explanation import EXPLANATION_DOMAIN, Explanation


@cache
def explanations() -> MappingProxyType[str, Explanation]:
    """Every operator's explanation by the operator's name; an operator without one is left out of `explain.onnx`."""
    return MappingProxyType({operator.name: found for operator in operators() if (found := _explanation_of(operator))})


def _explanation_of(operator: Operator) -> Explanation | None:
    name = f"gaussport.plugins.{operator.folder}.explanation"
    if importlib.util.find_spec(name) is None:
        return None
    explanation: Explanation = importlib.import_module(name).EXPLANATION
    return explanation


def explaining(
    model: onnx.ModelProto, constants: Mapping[str, NDArray[np.float32]], model_sha256: str
) -> onnx.ModelProto | None:
    """What is appended to `model` so that it has further outputs `LAYER/NAME` for each of our nodes; None when it has none.

    `constants` join them, by the same names. The metadata have the hash of the model's file and list layers, operators,
    attributes, grids and outputs.
    """
    nodes = [node for node in model.graph.node if node.domain == DOMAIN and node.op_type in explanations()]
    if not nodes:
        return None
    grids = _grids(model.graph)
    addition = onnx.ModelProto()
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    layers: list[dict[str, Any]] = []
    for number, node in enumerate(nodes):
        layer = node.name or f"attention {number}"
        outputs = _add_node(addition, explanations()[node.op_type], node, layer, opset)
        own = {key.partition("/")[2]: array for key, array in constants.items() if key.partition("/")[0] == layer}
        for name, array in own.items():
            addition.graph.initializer.append(onnx.numpy_helper.from_array(array, f"{layer}/{name}"))
            addition.graph.output.append(onnx.helper.make_tensor_value_info(f"{layer}/{name}", 1, array.shape))
        layers.append(
            {
                "name": layer,
                "operator": node.op_type,
                "grid": grids.get(node.input[0]),
                "attributes": {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
                "outputs": [*outputs, *own],
            }
        )
    addition.opset_import.append(onnx.helper.make_opsetid(EXPLANATION_DOMAIN, 1))
    description = json.dumps({"model_sha256": model_sha256, "layers": layers}, separators=(",", ":"))
    onnx.helper.set_model_props(addition, {METADATA_KEY: description})
    return addition


def _add_node(
    addition: onnx.ModelProto, explanation: Explanation, node: onnx.NodeProto, layer: str, opset: int
) -> list[str]:
    """Add the node that explains `node`, and its function unless it is there. Returns the names of its outputs."""
    variant = explanation.variant(node)
    known = {function.name: function for function in addition.functions}
    if variant not in known:
        known[variant] = shortened(explanation.function(opset, variant))
        addition.functions.append(known[variant])
    names = list(known[variant].output)
    outputs = [f"{layer}/{name}" for name in names]
    addition.graph.node.append(onnx.helper.make_node(variant, list(node.input), outputs, domain=EXPLANATION_DOMAIN))
    for name, output in zip(names, outputs, strict=True):
        axes = [None] * len(explanation.outputs[name].split())
        addition.graph.output.append(onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, axes))
    return names


def shortened(function: onnx.FunctionProto) -> onnx.FunctionProto:
    """The function with names of a letter or two for the values between its inputs and outputs."""
    kept = {*function.input, *function.output}
    words = (word for length in count(1) for word in map("".join, product(ascii_lowercase, repeat=length)))
    short: dict[str, str] = {}
    for node in function.node:
        for values in (node.input, node.output):
            for index, value in enumerate(values):
                if value and value not in kept:
                    if value not in short:
                        short[value] = next(word for word in words if word not in kept)
                    values[index] = short[value]
    return function


def _grids(graph: onnx.GraphProto) -> dict[str, list[int]]:
    """(H, W) of the values that are laid out as a grid of tokens: [batch, H, W, P, D]."""
    shapes = {value.name: value.type.tensor_type.shape.dim for value in graph.value_info}
    sizes = {name: [axis.dim_value for axis in axes] for name, axes in shapes.items()}
    return {name: axes[1:3] for name, axes in sizes.items() if len(axes) == 5 and all(axes[1:3])}
