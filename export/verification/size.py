"""Is the model about as large as its parameters, and if not, what grew? Folding may write tables that shapes imply."""

import math

import torch
from onnx import TensorProto, helper

from gaussport.errors import GaussportError
from gaussport.export.model_file import stored_bytes, tensor_bytes
from gaussport.export.passes.initializer_names import TRANSPOSED
from gaussport.export.verification.subject import Subject
from gaussport.models.classifier import Classifier
from gaussport.models.config import ClassifierConfig

ALLOWED = 1.2
"""How much larger than the parameters a model may be before the report says what grew."""
_NAMED = 3


def size_explained(subject: Subject) -> str:
    """The model's bytes beside its parameters', and the largest other tensors when it is more than a fifth larger."""
    total = len(subject.data) + sum(tensor_bytes(tensor) for tensor in subject.external)
    shapes = _parameter_shapes(subject)
    if shapes is None:
        return f"{total:,} bytes, {stored_bytes(subject.model):,} of them stored numbers"
    widths = {t.name.removesuffix(TRANSPOSED): _width(t) for t in subject.model.graph.initializer}
    parameters = sum(math.prod(shape) * widths.get(name, 4) for name, shape in shapes.items())
    said = f"{total:,} bytes, {total / parameters:.2f} times the parameters' {parameters:,}"
    if total <= ALLOWED * parameters:
        return said
    others = [t for t in subject.model.graph.initializer if t.name.removesuffix(TRANSPOSED) not in shapes]
    largest = sorted(others, key=tensor_bytes, reverse=True)[:_NAMED]
    graph = total - stored_bytes(subject.model)
    grew = [f"the graph itself ({graph:,})", *(f"{t.name} ({tensor_bytes(t):,})" for t in largest)]
    return f"{said}: beside them are {', '.join(grew)}"


def _parameter_shapes(subject: Subject) -> dict[str, tuple[int, ...]] | None:
    """The parameters that the manifest's configuration asks for; None for a model that is not one of our classifiers."""
    try:
        with torch.device("meta"):
            classifier = Classifier(ClassifierConfig.from_json(subject.bundle.manifest.config))
    except (GaussportError, TypeError, ValueError, RuntimeError):
        return None
    return {name: tuple(parameter.shape) for name, parameter in classifier.named_parameters()}


def _width(tensor: TensorProto) -> int:
    """Bytes of one of the tensor's numbers."""
    return int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
