"""How an operator enters ONNX: the node that torch's exporter writes for it, and the body that any runtime can run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import onnx
import onnxscript.values
from onnx.defs import OpSchema

from gaussport.plugins.operator import DOMAIN, OPSET_VERSION, Operator

FLOATS = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)", "tensor(double)"]


Shapes = Mapping[str, tuple[int | None, ...]]
"""Shapes of a model's values by name, as far as it states them; a dynamic axis is None."""


@dataclass(frozen=True)
class OnnxOperator:
    """One operator's ONNX side.

    `translate` writes the node for a call of `torch_op` during export. A node's `variant` names the body it needs, since
    a function body cannot ask which optional operands it was given or which sizes are fixed; `function(opset, variant)` is
    that body.
    """

    operator: Operator
    torch_op: Callable[..., object]
    translate: Callable[..., object]
    variant: Callable[[onnx.NodeProto, Shapes], str]
    function: Callable[[int, str], onnx.FunctionProto]


@cache
def node_writer(operator: Operator) -> onnxscript.values.Op:
    """What writes nodes of the operator while torch exports. Its schema is handed over, not registered process-wide."""
    opset = onnxscript.values.Opset(DOMAIN, OPSET_VERSION)
    return onnxscript.values.Op(opset, operator.name, schema(operator))


def schema(operator: Operator) -> OpSchema:
    """The operator's ONNX schema: all operands of one floating type T, an optional mask of any type M."""
    optional = OpSchema.FormalParameterOption.Optional
    inputs = [
        OpSchema.FormalParameter(operand.name, "M", operand.axes, param_option=optional)
        if operand.optional
        else OpSchema.FormalParameter(operand.name, "T", operand.axes)
        for operand in operator.operands
    ]
    constraints = [("T", FLOATS, "")]
    if any(operand.optional for operand in operator.operands):
        constraints.append(("M", [*FLOATS, "tensor(bool)", "tensor(int64)", "tensor(int32)"], ""))
    attributes = [
        OpSchema.Attribute(name, onnx.helper.make_attribute(name, default)) for name, default in operator.attributes
    ]
    return OpSchema(
        operator.name,
        DOMAIN,
        OPSET_VERSION,
        inputs=inputs,
        outputs=[OpSchema.FormalParameter("output", "T", operator.operands[0].axes)],
        type_constraints=constraints,
        attributes=attributes,
    )
