"""A checkpoint to a classifier: every parameter present, none left over, every shape as configured."""

from typing import overload

import torch
from torch import Tensor, nn

from gaussport.errors import CheckpointError, ConfigurationError
from gaussport.models.checkpoint.blame import fields_behind
from gaussport.models.checkpoint.contents import AnyCheckpoint, Checkpoint, SequenceCheckpoint
from gaussport.models.checkpoint.kinds import module_of
from gaussport.models.classifier import Classifier
from gaussport.models.sequence import SequenceClassifier

_NAMED = 3  # how many parameter names a message lists


@overload
def build_classifier(checkpoint: Checkpoint) -> Classifier: ...


@overload
def build_classifier(checkpoint: SequenceCheckpoint) -> SequenceClassifier: ...


@overload
def build_classifier(checkpoint: AnyCheckpoint) -> Classifier | SequenceClassifier: ...


def build_classifier(checkpoint: AnyCheckpoint) -> Classifier | SequenceClassifier:
    """The classifier with the checkpoint's weights, in eval mode. It shares no memory with the checkpoint.

    Raises:
        CheckpointError: parameters are missing or unexpected.
        ConfigurationError: a parameter's shape disagrees with the configuration.
    """
    classifier = check_fit(checkpoint)
    # One parameter for each tensor: what is one in the checkpoint, under several names, is one in the classifier.
    own = {id(tensor): nn.Parameter(tensor.detach().clone()) for tensor in checkpoint.state_dict.values()}
    weights = {name: own[id(tensor)] for name, tensor in checkpoint.state_dict.items()}
    classifier.load_state_dict(weights, strict=True, assign=True)
    return classifier.eval()


def check_fit(checkpoint: AnyCheckpoint) -> Classifier | SequenceClassifier:
    """The classifier without its weights, on the meta device, for a checkpoint whose names and shapes are its own.

    Raises:
        CheckpointError, ConfigurationError: as `build_classifier`.
    """
    classifier = _skeleton(checkpoint)
    expected = classifier.state_dict()
    _check_names(expected, checkpoint)
    _check_shapes(expected, checkpoint)
    return classifier


def _skeleton(checkpoint: AnyCheckpoint) -> Classifier | SequenceClassifier:
    """The classifier on the meta device, shapes only: nothing is allocated or initialised for what may not fit."""
    try:
        with torch.device("meta"):
            return module_of(checkpoint.config)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"the configuration of {_source(checkpoint)} cannot be built: {reason}") from None


def _check_names(expected: dict[str, Tensor], checkpoint: AnyCheckpoint) -> None:
    missing = [name for name in expected if name not in checkpoint.state_dict]
    unexpected = [name for name in checkpoint.state_dict if name not in expected]
    faults = []
    if missing:
        faults.append(f"lacks {len(missing)} of the configuration's {len(expected)} parameters ({_listed(missing)})")
    if unexpected:
        faults.append(f"has {len(unexpected)} that the configuration does not know ({_listed(unexpected)})")
    if faults:
        config = checkpoint.config
        raise CheckpointError(
            f"{_source(checkpoint)} {' and '.join(faults)}: check attention.family, which is {config.family}, its options, "
            f"and depth, which is {config.depth}"
        )


def _check_shapes(expected: dict[str, Tensor], checkpoint: AnyCheckpoint) -> None:
    for name, wanted in expected.items():
        stored = checkpoint.state_dict[name]
        if stored.shape != wanted.shape:
            raise ConfigurationError(
                f"{name} has shape {tuple(stored.shape)} in {_source(checkpoint)} but the configuration asks for "
                f"{tuple(wanted.shape)}: check {fields_behind(checkpoint.config, name, tuple(stored.shape))}"
            )


def _source(checkpoint: AnyCheckpoint) -> str:
    return checkpoint.source or "the checkpoint"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
