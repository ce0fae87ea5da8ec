"""Every operator's ONNX side: the translation table for torch's exporter, and bodies for the nodes of a model."""

import importlib
from collections.abc import Callable
from functools import cache
from types import MappingProxyType
from typing import Any

import onnx
import torch

from gaussport.plugins.latent_memory_routing.onnx_memory_product import write_causal_product
from gaussport.plugins.onnx_node import OnnxOperator, Shapes
from gaussport.plugins.operator import DOMAIN, OPSET_VERSION
from gaussport.plugins.registry import operators


@cache
def onnx_operators() -> MappingProxyType[str, OnnxOperator]:
    """Every operator by its ONNX name."""
    modules = (importlib.import_module(f"gaussport.plugins.{operator.folder}.onnx_op") for operator in operators())
    return MappingProxyType({module.ONNX.operator.name: module.ONNX for module in modules})


def translation_table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """`custom_translation_table` for `torch.onnx.export(..., dynamo=True)`."""
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    for entry in onnx_operators().values():
        packet = getattr(getattr(torch.ops, DOMAIN), entry.operator.folder)
        table[packet.default] = entry.translate
    table[torch.ops.gaussport.causal_memory_product.default] = write_causal_product
    return table


def attach_bodies(model: onnx.ModelProto) -> None:
    """Give each custom node of `model` its function body, in place; a model without any stays as it is.

    When nodes of one operator need different bodies, they are told apart by the function's overload name (IR 10); when
    they agree, as they do in every model but a mixed one, no overload is written and any runtime finds the body.
    """
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    shapes = _shapes(model.graph)
    for name, entry in onnx_operators().items():
        nodes = [node for node in model.graph.node if node.domain == DOMAIN and node.op_type == name]
        variants = sorted({entry.variant(node, shapes) for node in nodes})
        for variant in variants:
            body = entry.function(opset, variant)
            body.overload = variant if len(variants) > 1 else ""
            model.functions.append(body)
        for node in nodes:
            node.overload = entry.variant(node, shapes) if len(variants) > 1 else ""
    if model.functions and not any(entry.domain == DOMAIN for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, OPSET_VERSION))


def _shapes(graph: onnx.GraphProto) -> Shapes:
    shapes: dict[str, tuple[int | None, ...]] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            axes = value.type.tensor_type.shape.dim
            shapes[value.name] = tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in axes)
    return shapes
