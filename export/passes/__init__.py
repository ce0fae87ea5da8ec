"""Graph passes: small steps that turn what the exporter wrote into what we ship. One per file, composed here.

`PASSES` run during an export, on an `onnx_ir` model in place. The order matters: names are made from the exporter's
traces, which onnx-graphsurgeon would lose and the last pass removes.

The others work on a finished model and are chosen by whoever needs them: `operate(model, tag_plugins)`.

    fold_constants              compute what depends on constants alone, unless the result is large
    tag_plugins, untag_plugins  TensorRT's parser takes our plugins, or the bodies
    drop_bodies, keep_bodies    function bodies away, or (again) there
    precision.casting.narrow    a strongly typed graph in fp16 or bf16
    precision.quantization      Q/DQ around linear layers
"""

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gaussport.export.passes.deduplication import deduplicate_initializers
from gaussport.export.passes.exporter_traces import remove_exporter_traces
from gaussport.export.passes.folding import fold_constants
from gaussport.export.passes.function_bodies import drop_bodies, keep_bodies
from gaussport.export.passes.initializer_names import name_initializers
from gaussport.export.passes.node_names import name_nodes
from gaussport.export.passes.plugin_tags import tag_plugins, untag_plugins
from gaussport.export.passes.surgery import operate

__all__ = [
    "PASSES",
    "Parameters",
    "drop_bodies",
    "fold_constants",
    "keep_bodies",
    "operate",
    "tag_plugins",
    "untag_plugins",
]

Parameters = Mapping[str, NDArray[np.generic]]
"""The module's parameters and buffers by their PyTorch names."""

PASSES: tuple[Callable[[ir.Model, Parameters], None], ...] = (
    deduplicate_initializers,
    name_initializers,
    name_nodes,
    remove_exporter_traces,
)
