"""Where in the PyTorch module a node was made, from the traces that torch's exporter leaves on it."""

import ast

import onnx_ir as ir

_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
"""A Python list as text: the module's path grows along it, its last entry is the name of the traced operation."""


def module_path(node: ir.Node) -> str:
    """The module that made a node, e.g. `blocks.3.attn`; empty for the outermost module or an unknown origin."""
    text = node.metadata_props.get(_NAME_SCOPES)
    if text is None:
        return ""
    scopes = ast.literal_eval(text)
    return str(scopes[-2]) if len(scopes) >= 2 else ""


def unused(name: str, taken: set[str]) -> str:
    """`name`, or the first of `name_2`, `name_3`, … that nobody has; it is taken from now on."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free
