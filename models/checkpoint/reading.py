"""From a file to a `Checkpoint`: a survey without gaps, its numbers, and what describes the pictures and the classes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaussport.errors import CheckpointError, ConfigurationError, UsageError
from gaussport.models.checkpoint.contents import AnyCheckpoint, Checkpoint, SequenceCheckpoint
from gaussport.models.checkpoint.description import labels_from, metrics_from, preprocessing_from, tokenization_from
from gaussport.models.checkpoint.resizing import resized_config, resized_positions, resized_preprocessing
from gaussport.models.checkpoint.stated import labels_of
from gaussport.models.checkpoint.surveying import Survey, float32_of, survey_checkpoint
from gaussport.models.checkpoint.wishes import Wishes
from gaussport.models.config import ClassifierConfig
from gaussport.models.image.wishes import PictureWishes
from gaussport.models.sequence.config import SequenceConfig
from gaussport.models.text.wishes import TextWishes

_SURE_NAMES = {"patch_embed.weight", "token_embed.weight", "head.weight", "pos_embed"}


def read_checkpoint(
    path: Path, config_path: Path | None = None, labels: Sequence[str] | None = None, wishes: Wishes | None = None
) -> Checkpoint:
    """The classifier of pictures at `path`; see `read_any_checkpoint`.

    Raises:
        CheckpointError: as there, or it is a classifier of sequences.
        ConfigurationError, UsageError: as there.
    """
    checkpoint = read_any_checkpoint(path, config_path, labels, wishes)
    if not isinstance(checkpoint, Checkpoint):
        raise CheckpointError(f"{checkpoint.source} is a classifier of sequences, but one of pictures is needed: give one")
    return checkpoint


def read_any_checkpoint(
    path: Path, config_path: Path | None = None, labels: Sequence[str] | None = None, wishes: Wishes | None = None
) -> AnyCheckpoint:
    """Read the checkpoint at `path`, a file or a folder, as `wishes` say.

    The configuration is what shapes tell and files state: the one at `config_path`, else `config.json`, `config.yaml` and
    `preprocessor_config.json` beside the checkpoint, and what the checkpoint itself brings. `labels` win over those of a
    configuration file, which win over the checkpoint's; without any, classes are called "0", "1", … Whether the weights
    fit the configuration is `build_classifier`'s question.

    Raises:
        CheckpointError: the file is missing, damaged, foreign, dangerous, or its weights are not finite numbers.
        ConfigurationError: something about the model is missing, impossible, or said twice and differently.
        UsageError: a wish cannot be fulfilled.
    """
    return checkpoint_of(survey_checkpoint(Path(path), config_path, wishes), labels, wishes)


def checkpoint_of(survey: Survey, labels: Sequence[str] | None = None, wishes: Wishes | None = None) -> AnyCheckpoint:
    """The checkpoint that was surveyed; see `read_any_checkpoint`."""
    wishes = wishes or Wishes()
    _check_names_known(survey)
    _check_plausible({fact.field: fact.value for fact in survey.settled.facts}, survey)
    config = survey.settled.config(survey.source)
    stated: object = labels
    if labels is None and survey.labels is not None:
        stated = labels_of(survey.labels.content)
    if isinstance(config, SequenceConfig):
        return _of_sequences(survey, config, stated, wishes)
    checkpoint = _of_pictures(survey, config, stated, wishes)
    return checkpoint if wishes.input_size is None else _resized(checkpoint, wishes.input_size, wishes.pictures.crop)


def _of_pictures(survey: Survey, config: ClassifierConfig, labels: object, wishes: Wishes) -> Checkpoint:
    if wishes.text != TextWishes():
        raise UsageError(f"{survey.source} is a classifier of pictures: leave out what is said about text")
    described = survey.preprocessing
    preprocessing, assumed = preprocessing_from(
        _preprocessing_part(described.content) if described else None,
        wishes.pictures if wishes.input_size is None else replace(wishes.pictures, crop=None),
        config.image_size,
        config.channels,
        described.who if described else survey.source,
    )
    return Checkpoint(config=config, preprocessing=preprocessing, **_of_any(survey, config.classes, labels, assumed, wishes))


def _of_sequences(survey: Survey, config: SequenceConfig, labels: object, wishes: Wishes) -> SequenceCheckpoint:
    if wishes.pictures != PictureWishes() or wishes.input_size is not None:
        raise UsageError(f"{survey.source} is a classifier of sequences: leave out what is said about pictures")
    tokenization, assumed = tokenization_from(survey.tokenization, config, survey.source, wishes.text)
    return SequenceCheckpoint(
        config=config, preprocessing=tokenization, **_of_any(survey, config.classes, labels, assumed, wishes)
    )


def _of_any(survey: Survey, classes: int, labels: object, assumed_front: Sequence[str], wishes: Wishes) -> dict[str, Any]:
    """What checkpoints of both kinds have."""
    assumed_labels = () if labels is not None else ("labels",)
    return {
        "state_dict": float32_of(survey),
        "labels": labels_from(labels, classes, survey.source),
        "metrics": metrics_from(survey.stored.description.get("metrics")),
        "weights": survey.chosen.kind,
        "weights_key": survey.chosen.key,
        "source": survey.source,
        "sha256": survey.sha256,
        "renamed": tuple(f"{old}={new}" for old, new in wishes.rename),
        "stored_dtypes": survey.stored_dtypes,
        "assumed": (*assumed_front, *assumed_labels, *survey.settled.assumed),
    }


def _resized(checkpoint: Checkpoint, size: tuple[int, int], crop: tuple[int, int] | None) -> Checkpoint:
    if crop not in (None, size):
        raise UsageError(f"the crop {list(crop or ())} is not the input size {list(size)}: leave one of them out")
    config, weights = resized_config(checkpoint.config, size), dict(checkpoint.state_dict)
    H, W = checkpoint.config.grid
    if "pos_embed" in weights and weights["pos_embed"].shape[:2] == (1, H * W):
        weights["pos_embed"] = resized_positions(weights["pos_embed"], (H, W), config.grid)
    return replace(
        checkpoint,
        config=config,
        state_dict=weights,
        preprocessing=resized_preprocessing(checkpoint.preprocessing, size),
        resized_from=checkpoint.config.image_size,
    )


def _check_names_known(survey: Survey) -> None:
    """Weights of another model, told by their names: better than to ask for every field of a configuration."""
    names = list(survey.laid.tensors)
    if not survey.settled.missing or _SURE_NAMES & set(names):
        return
    first = names[0].partition(".")[0] + "."
    if first != "blocks." and all(name.startswith(first) for name in names):
        what, cure = f"every one begins with {first}", f"take that off with --rename '^{re.escape(first)}='"
    else:
        what, cure = f"the first is {names[0]}", "give --rename 'OLD=NEW', or --model for another module"
    raise CheckpointError(
        f"the {len(names)} names in {survey.source} are not those of a classifier known here, {what}: {cure}"
    )


def _preprocessing_part(document: Mapping[str, Any]) -> Any:
    return document.get("preprocessing", document)


def _check_plausible(facts: Mapping[str, Any], survey: Survey) -> None:
    """Counts that no file of this size can fill, before anything is made of them."""
    size = survey.stored.total_bytes
    for field in ("classes", "depth"):
        count = facts.get(field)
        if isinstance(count, int) and count > size:
            raise ConfigurationError(
                f"{field} is {count:,} but {survey.source} has only {size:,} bytes: give its own configuration"
            )
