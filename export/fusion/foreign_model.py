"""Reads somebody's ONNX file and brings it into the form that fusion works on: functions inlined, an opset that we write,
one float32 input of pictures with a dynamic batch, one output of logits. Anything else is refused with its reason.
"""

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import onnx
import onnx.checker
import onnx.inliner
import onnx.version_converter
import onnx_ir as ir
from google.protobuf.message import DecodeError

from gaussport.errors import ExportError
from gaussport.export.fusion.sampling import sample
from gaussport.export.opsets import HIGHEST, LOWEST
from gaussport.export.session import first_line
from gaussport.plugins import DOMAIN

BATCH = "batch"
_IR_WITH_OVERLOADS = 10


@dataclass(frozen=True)
class ForeignModel:
    """A model as fusion takes it, and as it was: `original` answers for what it should compute."""

    model: onnx.ModelProto
    original: onnx.ModelProto
    sha256: str
    opset: int
    """As it was in the file."""

    @property
    def picture(self) -> tuple[int, int, int]:
        """(channels, height, width) that the model takes."""
        channels, height, width = (axis.dim_value for axis in self.model.graph.input[0].type.tensor_type.shape.dim[1:])
        return channels, height, width

    @property
    def classes(self) -> int:
        return int(self.model.graph.output[0].type.tensor_type.shape.dim[1].dim_value)


def read_foreign_model(path: Path) -> ForeignModel:
    """The model in an ONNX file; weights in files beside it are read too.

    Raises:
        ExportError: it cannot be read, is not a classifier of pictures in float32, or its batch is fixed.
    """
    original, digest = _loaded(path)
    opset = next((entry.version for entry in original.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if not opset or opset > HIGHEST:
        raise ExportError(f"{path.name} is of opset {opset or 'none'}: export it with one from {LOWEST} to {HIGHEST}")
    _check_foreign(original, path.name)
    model = onnx.inliner.inline_local_functions(original)
    del model.functions[:]
    if opset < LOWEST:
        model = _converted(model, path.name, opset)
    _check_face(model, path.name)
    _name_axes(model, path.name)
    model.ir_version = max(model.ir_version, _IR_WITH_OVERLOADS)
    return ForeignModel(model, original, digest, opset)


def _loaded(path: Path) -> tuple[onnx.ModelProto, str]:
    try:
        digest = sha256(path.read_bytes()).hexdigest()
        model = onnx.load(path)
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror or error}") from error
    except DecodeError:
        raise ExportError(f"{path} is not an ONNX model: give the file that an exporter wrote") from None
    except Exception as error:  # weights beside it that are missing, too short or elsewhere: onnx has no base class for them
        raise ExportError(f"{path.name} cannot be read with the files beside it: {first_line(error)}") from error
    if not model.graph.node:
        raise ExportError(f"{path.name} has no nodes: give the file that an exporter wrote")
    return model, digest


def _check_foreign(model: onnx.ModelProto, name: str) -> None:
    """Inlined, our own function bodies would be somebody's attention that is written in an unknown way."""
    ours = Counter(node.op_type for node in model.graph.node if node.domain == DOMAIN)
    if ours:
        found = " and ".join(f"{count} {operator}" for operator, count in ours.items())
        raise ExportError(f"{name} has our operators already ({found}): verify or serve the bundle that it comes from")


def _converted(model: onnx.ModelProto, name: str, opset: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(model, LOWEST)
    except Exception as error:  # as above
        raise ExportError(
            f"{name} is of opset {opset} and cannot be converted to {LOWEST}, the least in which operators have bodies: "
            f"export it with opset {LOWEST}; {first_line(error)}"
        ) from error


def _check_face(model: onnx.ModelProto, name: str) -> None:
    """One float32 picture tensor with a dynamic batch in, one tensor out, nothing in another precision."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in stored]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        raise ExportError(
            f"{name} has {len(inputs)} inputs and {len(model.graph.output)} outputs: export a classifier, pictures in and "
            "logits out"
        )
    tensor = inputs[0].type.tensor_type
    axes = tensor.shape.dim
    if tensor.elem_type != onnx.TensorProto.FLOAT or len(axes) != 4:
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        raise ExportError(
            f"the input {inputs[0].name} of {name} is {kind} of {len(axes)} axes: export one of float [N, C, H, W]"
        )
    if axes[0].HasField("dim_value"):
        raise ExportError(
            f"the input {inputs[0].name} of {name} takes batches of {axes[0].dim_value} only: export it with a dynamic batch"
        )
    if not all(axis.dim_value for axis in axes[1:]):
        raise ExportError(f"the input {inputs[0].name} of {name} has no fixed size: export it for one picture size")
    narrow = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    for initializer in model.graph.initializer:
        if initializer.data_type in narrow:
            raise ExportError(
                f"{initializer.name} of {name} is stored in 16 bits: fuse the float32 model, lower its precision after that"
            )
    # Old exporters list initializers among the inputs, where a caller may replace them; a bundle's are fixed.
    del model.graph.input[:]
    model.graph.input.extend(inputs)


def _name_axes(model: onnx.ModelProto, name: str) -> None:
    """Say the shapes of input and output in the graph, which exporters may leave open: [batch, …] and [batch, classes]."""
    shapes = sample(ir.from_proto(model)).shapes
    for value in (model.graph.input[0], model.graph.output[0]):
        sizes = shapes.get(value.name)
        if sizes is None or not sizes or sizes[0] != (2, 3) or any(first != second for first, second in sizes[1:]):
            raise ExportError(f"{value.name} of {name} does not have one row for each picture: export a dynamic batch axis")
        del value.type.tensor_type.shape.dim[:]
        value.type.tensor_type.shape.dim.add(dim_param=BATCH)
        for size, _ in sizes[1:]:
            value.type.tensor_type.shape.dim.add(dim_value=size)
    if len(shapes[model.graph.output[0].name]) != 2:
        raise ExportError(f"the output {model.graph.output[0].name} of {name} is not [N, classes]: export a classifier")
