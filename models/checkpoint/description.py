"""What stands beside the weights: preprocessing, labels, metrics, read against the configuration they must agree with."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gaussport.errors import ConfigurationError
from gaussport.models.checkpoint.contents import Checkpoint
from gaussport.models.config import ClassifierConfig
from gaussport.models.image.preprocess import Preprocessing

_FINITE = 1e300


def to_description(checkpoint: Checkpoint) -> dict[str, Any]:
    """The JSON object that a checkpoint file keeps beside its tensors."""
    return {
        "config": checkpoint.config.to_json(),
        "preprocessing": checkpoint.preprocessing.model_dump(mode="json"),
        "labels": list(checkpoint.labels),
        "metrics": checkpoint.metrics,
    }


def config_from(document: Mapping[str, Any], source: str) -> ClassifierConfig:
    """The stored configuration, of which a classifier can be made.

    Raises:
        ConfigurationError: a field is missing, unknown, impossible or of the wrong type.
    """
    try:
        return ClassifierConfig.from_json(document)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"the configuration of {source} has a field of the wrong type: {error}") from None


def preprocessing_from(document: object, config: ClassifierConfig, source: str) -> Preprocessing:
    """The stored preprocessing, or resizing to the configured size and scaling to -1 … 1 when none is stored.

    Raises:
        ConfigurationError: it is not a preprocessing, or makes tensors of another shape than the configuration's.
    """
    if document is None:
        channels = {1: "L", 3: "RGB"}.get(config.channels)
        if channels is None:
            raise ConfigurationError(f"channels is {config.channels} but pictures have 1 (grey) or 3 (RGB)")
        halves = [0.5] * config.channels
        document = {"size": config.image_size, "channels": channels, "mean": halves, "std": halves}
    try:
        preprocessing = Preprocessing.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, ("preprocessing", *first["loc"])))
        raise ConfigurationError(f"{where} of {source} is impossible: {first['msg']}") from None
    wanted = (config.channels, *config.image_size)
    if preprocessing.tensor_shape != wanted:
        raise ConfigurationError(
            f"the preprocessing of {source} makes pictures of {preprocessing.tensor_shape} (channels, height, width) but "
            f"the configuration's channels and image_size ask for {wanted}"
        )
    return preprocessing


def labels_from(document: object, config: ClassifierConfig, source: str) -> tuple[str, ...]:
    """One label for each class, in the order of the head's rows; numbers when there are none.

    Raises:
        ConfigurationError: they are not text, or their count differs from the configured classes.
    """
    if document is None:
        return tuple(str(index) for index in range(config.classes))
    if not isinstance(document, list | tuple) or not all(isinstance(label, str) and label for label in document):
        raise ConfigurationError(f"the labels of {source} must be a list of names, none of them empty")
    if len(document) != config.classes:
        raise ConfigurationError(
            f"{len(document)} labels were given for {source}, but its head has {config.classes} classes: give one for each"
        )
    return tuple(document)


def metrics_from(document: object) -> dict[str, float]:
    """The numbers among the stored metrics; anything else in there tells nothing about the weights."""
    entries = document.items() if isinstance(document, Mapping) else ()
    return {str(name): float(value) for name, value in entries if isinstance(value, int | float) and abs(value) <= _FINITE}
