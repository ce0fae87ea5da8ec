"""From a file to a `Checkpoint`: the steps, and the choice between what the file says and what the caller says."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gaussport.errors import CheckpointError, ConfigurationError
from gaussport.models.checkpoint.container import Container, container_of
from gaussport.models.checkpoint.contents import Checkpoint, Stored
from gaussport.models.checkpoint.description import config_from, labels_from, metrics_from, preprocessing_from
from gaussport.models.checkpoint.numbers import finite_float32
from gaussport.models.checkpoint.safetensors_file import read_safetensors
from gaussport.models.checkpoint.sidecar import read_sidecar
from gaussport.models.checkpoint.torch_file import read_torch
from gaussport.models.config import ClassifierConfig


def read_checkpoint(path: Path, config_path: Path | None = None, labels: Sequence[str] | None = None) -> Checkpoint:
    """Read the checkpoint at `path`, with the configuration at `config_path` when the file brings none.

    `labels` win over those of the configuration file, which win over those of the checkpoint; without any, classes are
    called "0", "1", … Whether the weights fit the configuration is `build_classifier`'s question.

    Raises:
        CheckpointError: the file is missing, damaged, foreign, dangerous, or its weights are not finite numbers.
        ConfigurationError: no configuration, an impossible one, or labels and preprocessing that disagree with it.
    """
    path = Path(path)
    stored = _stored(path)
    state_dict = _state_dict(path, stored)
    beside = read_sidecar(Path(config_path)) if config_path is not None else {}
    described: Mapping[str, Any] = {**stored.description, **beside}
    config = _config(path, stored, beside)
    _check_plausible(config, path)
    chosen_labels = labels if labels is not None else described.get("labels")
    stated = {"preprocessing": described.get("preprocessing"), "labels": chosen_labels}
    return Checkpoint(
        config=config,
        state_dict=state_dict,
        preprocessing=preprocessing_from(described.get("preprocessing"), config, path.name),
        labels=labels_from(chosen_labels, config, path.name),
        metrics=metrics_from(stored.description.get("metrics")),
        source=path.name,
        sha256=_sha256(path),
        stored_dtypes=tuple(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in stored.tensors.values()})),
        assumed=tuple(name for name, value in stated.items() if value is None),
    )


def _stored(path: Path) -> Stored:
    container = container_of(path)
    return read_safetensors(path) if container is Container.SAFETENSORS else read_torch(path, container)


def _state_dict(path: Path, stored: Stored) -> dict[str, Tensor]:
    if not stored.tensors:
        raise CheckpointError(f"{path.name} holds no tensors: it is not a trained model")
    return finite_float32(stored.tensors, path.name, file_bytes=path.stat().st_size)


def _config(path: Path, stored: Stored, beside: Mapping[str, Any]) -> ClassifierConfig:
    """The configuration beside the weights, else the one in the file; two that disagree are refused, because a wrong
    head count changes no shape and no one would notice."""
    inside = stored.description.get("config")
    if "config" not in beside:
        if not isinstance(inside, Mapping):
            raise ConfigurationError(
                f"{path.name} holds weights but no configuration: give one with --config FILE "
                "(the JSON of a ClassifierConfig)"
            )
        return config_from(inside, path.name)
    given = config_from(beside["config"], "--config")
    try:
        own = config_from(inside, path.name) if isinstance(inside, Mapping) else given
    except ConfigurationError:
        return given  # a foreign configuration, which is why one was given
    differing = [name for name, value in own.to_json().items() if given.to_json()[name] != value]
    if differing:
        name = differing[0]
        raise ConfigurationError(
            f"{path.name} brings its own configuration with {name} = {own.to_json()[name]}, but the given one says "
            f"{given.to_json()[name]}: leave --config out"
        )
    return given


def _check_plausible(config: ClassifierConfig, path: Path) -> None:
    """Counts that no file of this size can fill, before anything is made of them."""
    size = path.stat().st_size
    for field in ("classes", "depth"):
        if getattr(config, field) > size:
            raise ConfigurationError(
                f"{field} is {getattr(config, field):,} but {path.name} has only {size:,} bytes: give its own configuration"
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
