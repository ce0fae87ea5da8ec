"""Graph passes: small steps that turn what the exporter wrote into what we ship. One per file, composed here.

A pass changes an `onnx_ir` model in place. The order matters: names are made from the exporter's traces, which the
last pass removes.
"""

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gaussport.export.passes.deduplication import deduplicate_initializers
from gaussport.export.passes.exporter_traces import remove_exporter_traces
from gaussport.export.passes.initializer_names import name_initializers
from gaussport.export.passes.node_names import name_nodes

Parameters = Mapping[str, NDArray[np.generic]]
"""The module's parameters and buffers by their PyTorch names."""

PASSES: tuple[Callable[[ir.Model, Parameters], None], ...] = (
    deduplicate_initializers,
    name_initializers,
    name_nodes,
    remove_exporter_traces,
)
