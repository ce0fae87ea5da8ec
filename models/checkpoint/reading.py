"""From a file to a `Checkpoint`: a survey without gaps, its numbers, and what describes the pictures and the classes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaussport.errors import CheckpointError, ConfigurationError, UsageError
from gaussport.models.checkpoint.contents import Checkpoint
from gaussport.models.checkpoint.description import labels_from, metrics_from, preprocessing_from
from gaussport.models.checkpoint.resizing import resized_config, resized_positions, resized_preprocessing
from gaussport.models.checkpoint.stated import labels_of
from gaussport.models.checkpoint.surveying import Survey, float32_of, survey_checkpoint
from gaussport.models.checkpoint.wishes import Wishes

_SURE_NAMES = {"patch_embed.weight", "head.weight", "pos_embed"}


def read_checkpoint(
    path: Path, config_path: Path | None = None, labels: Sequence[str] | None = None, wishes: Wishes | None = None
) -> Checkpoint:
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


def checkpoint_of(survey: Survey, labels: Sequence[str] | None = None, wishes: Wishes | None = None) -> Checkpoint:
    """The checkpoint that was surveyed; see `read_checkpoint`."""
    wishes = wishes or Wishes()
    source = survey.source
    _check_names_known(survey)
    _check_plausible({fact.field: fact.value for fact in survey.settled.facts}, survey)
    config = survey.settled.config(source)
    described = survey.preprocessing
    preprocessing, assumed_pictures = preprocessing_from(
        _preprocessing_part(described.content) if described else None,
        wishes.pictures if wishes.input_size is None else replace(wishes.pictures, crop=None),
        config.image_size,
        config.channels,
        described.who if described else source,
    )
    stated_labels: object = labels
    if labels is None and survey.labels is not None:
        stated_labels = labels_of(survey.labels.content)
    assumed = (*assumed_pictures, *(() if stated_labels is not None else ("labels",)), *survey.settled.assumed)
    checkpoint = Checkpoint(
        config=config,
        state_dict=float32_of(survey),
        preprocessing=preprocessing,
        labels=labels_from(stated_labels, config.classes, source),
        metrics=metrics_from(survey.stored.description.get("metrics")),
        weights=survey.chosen.kind,
        weights_key=survey.chosen.key,
        source=source,
        sha256=survey.sha256,
        renamed=tuple(f"{old}={new}" for old, new in wishes.rename),
        stored_dtypes=survey.stored_dtypes,
        assumed=assumed,
    )
    return checkpoint if wishes.input_size is None else _resized(checkpoint, wishes.input_size, wishes.pictures.crop)


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
