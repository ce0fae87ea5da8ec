"""`gaussport::LatentMemoryRouting` in ONNX: the node that torch's export writes, and its bodies in standard operators.

A function body cannot ask whether it was given key_mask nor how many tokens, so there is one body per variant.
"""

import onnx
import onnx.parser

from gaussport.plugins.latent_memory_routing import onnx_body, onnx_tiled
from gaussport.plugins.latent_memory_routing.schema import OPERATOR
from gaussport.plugins.latent_memory_routing.torch_op import latent_memory_routing
from gaussport.plugins.onnx_node import OnnxOperator, Shapes, node_writer
from gaussport.plugins.operator import DOMAIN


def variant(node: onnx.NodeProto, shapes: Shapes) -> str:
    """Which body a node needs: `causal` or not, `masked` or not, joined by `_`; in both directions also the number of
    tokens where the model fixes it and tiles divide it, e.g. `masked_4096`."""
    causal = any(attribute.name == "causal" and attribute.i for attribute in node.attribute)
    masked = len(node.input) == len(OPERATOR.operands) and node.input[-1] != ""
    tokens = next((shape[1] for name in node.input[:3] if (shape := shapes.get(name)) and shape[1] is not None), None)
    tiled = not causal and tokens is not None and onnx_tiled.tile(tokens) is not None
    return "_".join(word for word, present in (("causal", causal), ("masked", masked), (str(tokens), tiled)) if present)


def function(opset: int, variant: str) -> onnx.FunctionProto:
    """The body of one variant as a model-local function for a model of that opset."""
    words = variant.split("_")
    operands = [operand.name for operand in OPERATOR.operands]
    operands = operands if "masked" in words else operands[:-1]
    if words[-1].isdecimal():
        text = onnx_tiled.text(DOMAIN, OPERATOR.name, opset, operands, int(words[-1]))
    else:
        text = onnx_body.text(DOMAIN, OPERATOR.name, opset, operands, "causal" in words)
    return onnx.parser.parse_function(text)


def _node(
    query: object,
    key: object,
    value: object,
    mean: object,
    variance: object,
    log_prior: object,
    key_mask: object = None,
    epsilon: float = 1e-6,
    causal: bool = False,
) -> object:
    operands = [query, key, value, mean, variance, log_prior]
    masked = [] if key_mask is None else [key_mask]
    return node_writer(OPERATOR)(*operands, *masked, epsilon=epsilon, causal=int(causal))


ONNX = OnnxOperator(OPERATOR, latent_memory_routing, _node, variant, function)
