"""`gaussport::SeparableGaussianFilter` in ONNX: the node that torch's export writes, and its body in standard operators.

The body is two batched MatMuls with filters made on the way; `onnx_body` and `onnx_steered` are its text. A fixed field
(b = h = w = 1) broadcasts into the MatMuls without being expanded.
"""

import onnx
import onnx.parser

from gaussport.plugins.onnx_node import OnnxOperator, Shapes, node_writer
from gaussport.plugins.operator import DOMAIN
from gaussport.plugins.separable_gaussian_filter import onnx_body, onnx_steered
from gaussport.plugins.separable_gaussian_filter.onnx_body import Grid
from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR
from gaussport.plugins.separable_gaussian_filter.torch_op import separable_gaussian_filter

_SIZES = [("value", 1), ("value", 2), ("value", 3), ("value", 4), ("weight", 4)]  # operand and axis of H, W, P, D, R
_STEERED = "_steered"


def variant(node: onnx.NodeProto, shapes: Shapes) -> str:
    """`HxWxPxDxR` where the model fixes these sizes, e.g. `14x14x6x64x4`, with `_steered` where it fixes that each token has
    its own field; `""` where a size is dynamic.

    Sizes written into the body let ONNX Runtime fold all that follows from them, for a fixed field the filters themselves.
    """
    axes = {operand.name: shapes.get(name) for operand, name in zip(OPERATOR.operands, node.input, strict=True)}
    sizes = [None if (shape := axes[name]) is None else shape[axis] for name, axis in _SIZES]
    if None in sizes:
        return ""
    field = axes["weight"]
    steered = field is not None and field[1:3] == tuple(sizes[:2]) and field[1:3] != (1, 1)
    return "x".join(map(str, sizes)) + _STEERED * steered


def function(opset: int, variant: str) -> onnx.FunctionProto:
    """The body of one variant as a model-local function for a model of that opset."""
    if not variant:
        return onnx.parser.parse_function(onnx_body.text(DOMAIN, OPERATOR.name, opset, None))
    grid = Grid(*map(int, variant.removesuffix(_STEERED).split("x")))
    text = onnx_steered.text if variant.endswith(_STEERED) else onnx_body.text
    return onnx.parser.parse_function(text(DOMAIN, OPERATOR.name, opset, grid))


def _node(value: object, offset: object, width: object, weight: object) -> object:
    return node_writer(OPERATOR)(value, offset, width, weight)


ONNX = OnnxOperator(OPERATOR, separable_gaussian_filter, _node, variant, function)
