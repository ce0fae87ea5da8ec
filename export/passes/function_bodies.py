"""Function bodies of the custom nodes: drop them for a builder that must take our plugins, or attach them again."""

import onnx

from gaussport.plugins import DOMAIN
from gaussport.plugins.onnx_registry import attach_bodies


def drop_bodies(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without our functions: a runtime that lacks a plugin then fails instead of running a body in silence."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    kept = [function for function in model.functions if function.domain != DOMAIN]
    del bare.functions[:]
    bare.functions.extend(kept)
    for node in bare.graph.node:
        if node.domain == DOMAIN:
            node.overload = ""
    return bare


def keep_bodies(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the bodies that its custom nodes need, whatever it had before."""
    whole = drop_bodies(model)
    attach_bodies(whole)
    return whole
