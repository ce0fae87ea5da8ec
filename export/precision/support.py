"""Which layers have a node that ONNX does not define in a narrow format: a graph with one is refused by its own checker."""

import onnx
import onnx.defs
import onnx_graphsurgeon as gs

from gaussport.export.opsets import HIGHEST
from gaussport.export.precision.formats import Format
from gaussport.export.precision.layers import layers


def unsupported(model: onnx.ModelProto, format: Format) -> dict[str, str]:
    """The layers that cannot be in `format` at the model's opset, and why: Conv, say, knows bfloat16 from opset 22 on."""
    graph = gs.import_onnx(model)
    return {
        name: reason
        for name, nodes in layers(graph).items()
        for node in nodes
        if not node.domain and (reason := _lack(node.op, graph.opset, format))
    }


def _lack(op: str, opset: int, format: Format) -> str | None:
    if _takes(op, opset, format):
        return None
    later = next((version for version in range(opset + 1, HIGHEST + 1) if _takes(op, version, format)), None)
    cure = "" if later is None else f", and has it in {later}: --opset {later}"
    return f"ONNX has no {op} of {format.long_name} in opset {opset}{cure}"


def _takes(op: str, opset: int, format: Format) -> bool:
    schema = onnx.defs.get_schema(op, opset, "")
    kinds = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    return f"tensor({format.long_name})" in kinds.get(schema.outputs[0].type_str, ())
