"""Call nodes what PyTorch calls them: profiles, layer reports and errors then speak of `blocks.3.attn`."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gaussport.export.passes.scopes import module_path, unused
from gaussport.plugins import DOMAIN


def name_nodes(model: ir.Model, _parameters: Mapping[str, NDArray[np.generic]]) -> None:
    """A custom node takes its module's path; any other node the path and its type, `blocks.3.mlp.0/MatMul`."""
    taken: set[str] = set()
    for node in model.graph.all_nodes():
        path = module_path(node)
        parts = [path] if node.domain == DOMAIN and path else [path, node.op_type]
        node.name = unused("/".join(filter(None, parts)), taken)
