"""A module to ONNX as users export it: by either exporter, folded by nobody, the exporter, or ONNX Runtime offline."""

import io
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import torch
from torch import nn

from gaussport.export.quiet import quiet_exporter
from gaussport.onnx_runtime import onnxruntime


def exported(module: nn.Module, image: tuple[int, int, int], exporter: str = "dynamo", opset: int = 18) -> onnx.ModelProto:
    """The plain ONNX model of `module`, with a dynamic batch axis."""
    example = (torch.zeros(2, *image),)
    buffer = io.BytesIO()
    with quiet_exporter(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what exporters say of themselves
        if exporter == "dynamo":
            program = torch.onnx.export(
                module.eval(),
                example,
                dynamo=True,
                opset_version=opset,
                verbose=False,
                dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
            )
            assert program is not None
            return program.model_proto
        torch.onnx.export(
            module.eval(),
            example,
            buffer,  # type: ignore[arg-type]
            dynamo=False,
            opset_version=opset,
            do_constant_folding=exporter != "torchscript unfolded",
            input_names=["images"],
            dynamic_axes={"images": {0: "n"}},
        )
    return onnx.load_model_from_string(buffer.getvalue())


def optimised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model after ONNX Runtime's basic offline optimisation, as deployment scripts store it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(path)
