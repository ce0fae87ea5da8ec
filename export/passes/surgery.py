"""Run onnx-graphsurgeon passes over a finished model without losing what graphsurgeon does not know.

It drops the overload names that tell function bodies apart, and rewrites the bodies: both are kept aside and put back.
"""

from collections.abc import Callable

import onnx
import onnx_graphsurgeon as gs

from gaussport.errors import ExportError

SurgeryPass = Callable[[gs.Graph], None]
"""A step that changes the graph in place. Nodes keep their names or take new, unused ones."""


def operate(model: onnx.ModelProto, *passes: SurgeryPass) -> onnx.ModelProto:
    """The model after the passes, in the order given; unused nodes and tensors are gone. `model` itself is unchanged.

    Raises:
        ExportError: two of its custom nodes have one name, so that their bodies could be mixed up.
    """
    overloads = _overloads(model)
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.functions[:]
    graph = gs.import_onnx(bare)
    for step in passes:
        step(graph)
    graph.cleanup().toposort()
    changed: onnx.ModelProto = gs.export_onnx(graph)
    changed.producer_name, changed.producer_version = model.producer_name, model.producer_version
    changed.functions.extend(model.functions)
    for node in changed.graph.node:
        node.overload = overloads.get(node.name, "")
    return changed


def _overloads(model: onnx.ModelProto) -> dict[str, str]:
    named = [node for node in model.graph.node if node.overload]
    overloads = {node.name: node.overload for node in named}
    if len(overloads) != len(named):
        raise ExportError("two nodes of the graph have one name: export the model again, which names each node once")
    return overloads
