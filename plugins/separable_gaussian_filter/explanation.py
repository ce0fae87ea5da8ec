"""What is looked at of a `SeparableGaussianFilter`: its field as it steers each token."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx.parser

from gaussport.plugins.explanation import EXPLANATION_DOMAIN, Array, Explanation
from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR

OUTPUTS = {"offset": "b h w P R 2", "width": "b h w P R 2", "weight": "b h w P R"}

_TEXT = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} (value, offset_given, width_given, weight_given) => (offset, width, weight)
{{
  offset = Cast <to = 1> (offset_given)
  width = Cast <to = 1> (width_given)
  weight = Cast <to = 1> (weight_given)
}}
"""


def function(opset: int, variant: str) -> onnx.FunctionProto:
    """offset, width [b, h, w, P, R, 2] and weight [b, h, w, P, R]: the operands, in float32."""
    return onnx.parser.parse_function(_TEXT.format(domain=EXPLANATION_DOMAIN, opset=opset, name=variant))


def expected(operands: Sequence[Array | None], attributes: Mapping[str, Any]) -> dict[str, Array]:
    """The field itself: offset, width and weight as the operator gets them."""
    return {name: operand for name, operand in zip(OUTPUTS, operands[1:], strict=True) if operand is not None}


EXPLANATION = Explanation(OPERATOR, OUTPUTS, lambda _node: OPERATOR.name, function, expected)
