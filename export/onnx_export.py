"""From a PyTorch module to an ONNX model: trace, tidy, attach the operators' bodies, check.

    module ──torch.onnx──▶ onnx_ir.Model ──PASSES──▶ ModelProto ──attach_bodies──▶ ──check_graph──▶ ModelProto

Each attention becomes one node of our domain with a body in standard operators, so that any runtime can run the file
and one that knows the operator can run it faster.
"""

import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import nn

from gaussport.errors import ExportError
from gaussport.export.bundle.manifest import TensorSpec
from gaussport.export.custom_calls import custom_calls
from gaussport.export.evaluation import evaluating
from gaussport.export.graph_check import check_graph
from gaussport.export.opsets import DEFAULT, check_opset
from gaussport.export.passes import PASSES
from gaussport.export.probes import PIXELS
from gaussport.export.quiet import quiet_exporter
from gaussport.plugins.onnx_registry import attach_bodies, translation_table

OUTPUT, BATCH = "logits", "batch"

_TAKEN = "meta"  # an attribute of torch.fx.GraphModule, which a part of that name would hide

_EXAMPLE_SIZE = 2  # of an axis of any size: with 1 the exporter would take it for one that broadcasts, and fix it


def pictures_of(shape: tuple[int, int, int]) -> TensorSpec:
    """The input that takes pictures [batch, *shape]."""
    return TensorSpec(name=PIXELS, dtype="float32", shape=(BATCH, *shape))


def export_onnx(
    module: nn.Module, takes: Sequence[TensorSpec], opset: int = DEFAULT, gives: Sequence[str] = (OUTPUT,)
) -> onnx.ModelProto:
    """The ONNX model of `module`, whose forward takes what `takes` describes, in this order, and gives logits
    [batch, classes], or as many tensors as `gives` names. An axis that is a symbol may have any size, the same wherever the
    symbol stands.

    The module is traced in eval mode and returned as it was. Equal modules give equal models, to the byte.

    Raises:
        UsageError: the opset is not one that we write.
        ExportError: the module cannot be traced for every batch size, or its graph is not one that we can ship.
    """
    check_opset(opset)
    with evaluating(module):
        _check_parameters(module)
        examples = tuple(_example(spec) for spec in takes)
        calls = _calls(module, examples)
        model = _trace(module, takes, examples, opset, gives)
        parameters = _parameters(module)
    for graph_pass in PASSES:
        graph_pass(model, parameters)
    proto = ir.to_proto(model)
    attach_bodies(proto)
    check_graph(proto, opset=opset, calls=calls)
    return proto


def _example(spec: TensorSpec) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return torch.zeros([_EXAMPLE_SIZE if isinstance(axis, str) else axis for axis in spec.shape], dtype=dtype)


def _calls(module: nn.Module, examples: tuple[torch.Tensor, ...]) -> Counter[str]:
    """How often the module calls each of our operators, told by a run of it."""
    try:
        return custom_calls(module, examples)
    except Exception as error:  # whatever somebody's module raises
        raise ExportError(
            f"the module fails on a batch of {_EXAMPLE_SIZE}: {_reason(error)}; it must take any batch, so write "
            "x.shape[0] where it needs the number of rows"
        ) from error


def _trace(
    module: nn.Module, takes: Sequence[TensorSpec], examples: tuple[torch.Tensor, ...], opset: int, gives: Sequence[str]
) -> ir.Model:
    symbols = {axis: torch.export.Dim(axis, min=1) for spec in takes for axis in spec.shape if isinstance(axis, str)}
    dynamic: tuple[Any, ...] = tuple(
        {n: symbols[axis] for n, axis in enumerate(spec.shape) if isinstance(axis, str)} for spec in takes
    )
    alone = [p for p in inspect.signature(module.forward).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    if len(alone) < len(takes):  # those behind a star are one for the tracer
        dynamic = (*dynamic[: len(alone)], dynamic[len(alone) :])
    try:
        with quiet_exporter():
            program = torch.onnx.export(
                module,
                examples,
                dynamo=True,
                opset_version=opset,
                input_names=[spec.name for spec in takes],
                output_names=list(gives),
                dynamic_shapes=dynamic,
                custom_translation_table=translation_table(),
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        if _TAKEN in dict(module.named_children()):
            raise ExportError(f"the module's part {_TAKEN} has a name that PyTorch's tracer needs: rename it") from error
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
