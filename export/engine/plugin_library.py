"""What the engine builder takes from the plugin library: the library's file, and each custom node's attributes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from gaussport.errors import ExportError
from gaussport.export.engine.graph import PluginNode, set_attributes
from gaussport.plugins.tensorrt.attributes import plugin_attributes
from gaussport.plugins.tensorrt.library import build_library

_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_MASKS = {**_SHORT, "int32": "i32", "int64": "i64", "bool": "i1"}


@dataclass(frozen=True)
class PluginLibrary:
    """The built library. Kernels travel in the nodes' attributes, so one library serves every architecture."""

    path: Path
    quick: bool = False
    """Compile one way to run each kernel, for the asked GPU alone: TensorRT has nothing to choose from, and no newer GPU can
    compile the kernels for itself."""

    @classmethod
    def build(cls, quick: bool = False) -> "PluginLibrary":
        """Build or find it. ExportError when this machine cannot."""
        return cls(build_library(), quick)

    def equip(self, model: onnx.ModelProto, nodes: Sequence[PluginNode], architecture: int) -> None:
        """Give every custom node what its plugin needs on that architecture, in place. ExportError when it cannot be."""
        set_attributes(model, {node.name: _attributes(node, architecture, self.quick) for node in nodes})


def _attributes(node: PluginNode, architecture: int, quick: bool) -> dict[str, str | int | float]:
    if node.dtype not in _SHORT:
        raise ExportError(f"{node.name} computes in {node.dtype}: its plugin has kernels for {', '.join(_SHORT)}")
    fixed = [None if shape is None else [n if isinstance(n, int) else None for n in shape] for shape in node.shapes]
    return plugin_attributes(
        node.operator,
        [fixed],
        _SHORT[node.dtype],
        architectures=[architecture],
        attributes=node.attributes,
        portable=not quick,
        every_tactic=not quick,
        mask_dtype=_MASKS.get(node.mask_dtype or "float32", str(node.mask_dtype)),
    )
