"""Does the manifest say of the graph what the graph is?"""

import onnx
import onnx.shape_inference
from onnx import TensorProto

from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import TensorSpec
from gaussport.export.precision.census import precision_of
from gaussport.export.session import first_line
from gaussport.export.verification.subject import Subject
from gaussport.export.work import opset_of, tensor_spec
from gaussport.plugins import DOMAIN


def manifest_agrees(subject: Subject) -> str:
    """Names, types and axes of input and output, opset, operator versions, precision; one symbol for the batch."""
    manifest, graph = subject.bundle.manifest, subject.model.graph
    for side, values, stated in (("input", graph.input, manifest.inputs), ("output", graph.output, (manifest.output,))):
        if len(values) != len(stated):
            count = "one" if len(stated) == 1 else len(stated)
            raise BundleError(f"the graph has {len(values)} {side}s where the manifest states {count}")
        for value, spec in zip(values, stated, strict=True):
            _check_value(side, value, spec)
    if manifest.input.shape[0] != manifest.output.shape[0]:
        raise BundleError(f"the batch axis is {manifest.input.shape[0]} going in and {manifest.output.shape[0]} coming out")
    opset, custom = opset_of(subject.model, ""), opset_of(subject.model, DOMAIN)
    if opset != manifest.opset:
        raise BundleError(f"the graph imports opset {opset}, the manifest says {manifest.opset}")
    if manifest.operators != ({} if custom is None else {DOMAIN: custom}):
        raise BundleError(f"the graph imports {DOMAIN} version {custom}, the manifest says {manifest.operators or 'none'}")
    try:
        precision = precision_of(subject.model)
    except onnx.shape_inference.InferenceError as error:
        raise BundleError(f"the graph's types contradict each other: {first_line(error)}") from error
    if precision != manifest.precision:
        raise BundleError(f"the graph's layers compute in {precision}, the manifest says {manifest.precision}")
    return f"{', '.join(map(_text, manifest.inputs))} → {_text(manifest.output)}, {len(manifest.labels)} labels, {precision}"


def _check_value(side: str, value: onnx.ValueInfoProto, stated: TensorSpec) -> None:
    tensor = value.type.tensor_type
    if tensor.elem_type == TensorProto.UNDEFINED or not tensor.HasField("shape") or not tensor.shape.dim:
        raise BundleError(f"the graph's {side} {value.name} has no type or shape")
    if not tensor.shape.dim[0].dim_param:
        raise BundleError(
            f"the graph's {side} {value.name} has its batch axis fixed at {tensor.shape.dim[0].dim_value}: it must be a "
            "symbol, export the bundle again"
        )
    if _text(tensor_spec(value)) != _text(stated):
        raise BundleError(f"the graph's {side} is {_text(tensor_spec(value))}, the manifest says {_text(stated)}")


def _text(spec: TensorSpec) -> str:
    return f"{spec.name} {spec.dtype} [{', '.join(map(str, spec.shape))}]"
