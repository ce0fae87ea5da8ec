"""Is the model about as large as its parameters?"""

import torch
from torch import nn

from gaussport.errors import GaussportError
from gaussport.export.bundle.manifest import Manifest
from gaussport.export.model_file import stored_bytes, tensor_bytes
from gaussport.export.size import size_said
from gaussport.export.verification.subject import Subject
from gaussport.models.checkpoint.kinds import module_of
from gaussport.models.config import ClassifierConfig
from gaussport.models.sequence import SequenceConfig


def size_explained(subject: Subject) -> str:
    """The model's bytes beside its parameters', and what grew when it is more than a fifth larger."""
    total = len(subject.data) + sum(tensor_bytes(tensor) for tensor in subject.external)
    shapes = _parameter_shapes(subject)
    if shapes is None:
        return f"{total:,} bytes, {stored_bytes(subject.model):,} of them stored numbers"
    return size_said(subject.model, total, shapes)


def _parameter_shapes(subject: Subject) -> dict[str, tuple[int, ...]] | None:
    """The parameters that the manifest's configuration asks for, or those of the checkpoint; None for a model that is not
    one of our classifiers, without its checkpoint."""
    try:
        if subject.wish.checkpoint is not None:
            module = subject.classifier
        else:
            with torch.device("meta"):
                module = _classifier(subject.bundle.manifest)
    except (GaussportError, TypeError, ValueError, RuntimeError):
        return None
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def _classifier(manifest: Manifest) -> nn.Module:
    kind = SequenceConfig if manifest.takes_text else ClassifierConfig
    return module_of(kind.from_json(manifest.config))
