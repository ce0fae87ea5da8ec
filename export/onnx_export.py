"""From a PyTorch module to an ONNX model: trace, tidy, attach the operators' bodies, check.

    module ──torch.onnx──▶ onnx_ir.Model ──PASSES──▶ ModelProto ──attach_bodies──▶ ──check_graph──▶ ModelProto

Each attention becomes one node of our domain with a body in standard operators, so that any runtime can run the file
and one that knows the operator can run it faster.
"""

import numpy as np
import onnx
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import nn

from gaussport.errors import ExportError
from gaussport.export.custom_calls import custom_calls
from gaussport.export.evaluation import evaluating
from gaussport.export.graph_check import check_graph
from gaussport.export.opsets import DEFAULT, check_opset
from gaussport.export.passes import PASSES
from gaussport.export.quiet import quiet_exporter
from gaussport.plugins.onnx_registry import attach_bodies, translation_table

INPUT, OUTPUT, BATCH = "pixels", "logits", "batch"

_EXAMPLE_BATCH = 2  # with 1 the exporter would take the batch axis for one that broadcasts, and fix it


def export_onnx(module: nn.Module, shape: tuple[int, int, int], opset: int = DEFAULT) -> onnx.ModelProto:
    """The ONNX model of `module`, which maps pixels [batch, *shape] to logits [batch, classes].

    The module is traced in eval mode and returned as it was. Equal modules give equal models, to the byte.

    Raises:
        UsageError: the opset is not one that we write.
        ExportError: the module cannot be traced for every batch size, or its graph is not one that we can ship.
    """
    check_opset(opset)
    with evaluating(module):
        _check_parameters(module)
        pixels = torch.zeros(_EXAMPLE_BATCH, *shape)
        calls = custom_calls(module, pixels)
        model = _trace(module, pixels, opset)
        parameters = _parameters(module)
    for graph_pass in PASSES:
        graph_pass(model, parameters)
    proto = ir.to_proto(model)
    attach_bodies(proto)
    check_graph(proto, opset=opset, calls=calls)
    return proto


def _trace(module: nn.Module, pixels: torch.Tensor, opset: int) -> ir.Model:
    try:
        with quiet_exporter():
            program = torch.onnx.export(
                module,
                (pixels,),
                dynamo=True,
                opset_version=opset,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=({0: torch.export.Dim(BATCH, min=1)},),
                custom_translation_table=translation_table(),
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise ExportError(f"the model cannot be traced for every batch size: {_reason(error)}") from error
    assert program is not None
    return program.model


def _reason(error: BaseException) -> str:
    """The first line of the innermost cause, which names the fault; the outer ones describe the exporter's attempts."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _check_parameters(module: nn.Module) -> None:
    """Raise an ExportError unless they are float32 and on the CPU."""
    dtypes = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if dtypes - {torch.float32}:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise ExportError(f"the model's parameters are {names}: convert the module with .float() before the export")
    devices = {str(parameter.device) for parameter in module.parameters()} - {"cpu"}
    if devices:
        raise ExportError(f"the model's parameters are on {', '.join(sorted(devices))}: call .cpu() before the export")


def _parameters(module: nn.Module) -> dict[str, NDArray[np.generic]]:
    return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
