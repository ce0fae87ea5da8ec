"""A small good checkpoint for the tests, and the shapes of file it can be stored in."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gaussport.models.checkpoint import Checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset

LABELS = ("tench", "goldfish", "great white shark", "tiger shark", "hammerhead", "ray", "stingray", "cock", "hen", "ostrich")
PREPROCESSING = Preprocessing(size=(32, 32), resize_shorter=40, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))


def good_checkpoint(family: str = "ssog") -> Checkpoint:
    """A `tiny` classifier of the family with random weights."""
    config = preset(f"{family}-tiny")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state_dict = Classifier(config).state_dict()
    return Checkpoint(config, dict(state_dict), PREPROCESSING, LABELS, {"held_out_accuracy": 0.75})


def torch_document(checkpoint: Checkpoint, weights_key: str = "state_dict") -> dict[str, Any]:
    """What people give to torch.save."""
    return {
        "config": checkpoint.config.to_json(),
        weights_key: checkpoint.state_dict,
        "labels": list(checkpoint.labels),
        "epoch": 3,
    }


def with_weights(checkpoint: Checkpoint, **changes: Tensor) -> Checkpoint:
    """The checkpoint with the named parameters (dots as __) replaced."""
    return replace(checkpoint, state_dict={**checkpoint.state_dict, **{k.replace("__", "."): v for k, v in changes.items()}})


def save(path: Path, content: object, legacy: bool = False) -> Path:
    """torch.save, in the zip format or the old pickle one."""
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path
