"""Remove what the exporter wrote about the machine and the source: stack traces, paths, Python reprs.

They tell strangers about the machine that exported, differ between machines, and are often larger than a small model.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gaussport import __version__


def remove_exporter_traces(model: ir.Model, _parameters: Mapping[str, NDArray[np.generic]]) -> None:
    """Clear every metadata entry and doc string of the model, and sign it as ours."""
    model.producer_name, model.producer_version = "gaussport", __version__
    model.domain, model.doc_string = None, None
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.graph.doc_string = None
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for attribute in node.attributes.values():
            attribute.doc_string = None
    for value in _values(model.graph):
        value.metadata_props.clear()
        value.doc_string = None
        if value.const_value is not None:
            value.const_value.metadata_props.clear()
            value.const_value.doc_string = None


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph.all_nodes():
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _values(attribute.as_graph())
