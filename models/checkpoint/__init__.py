"""Checkpoints: weights with the configuration, preprocessing and labels that make them a classifier.

    file ──container──▶ format ──a reader──▶ Stored ──weight_sets──▶ one set ──names, layouts──▶ our names and shapes
         ──inference, sidecar──▶ configuration ──reading──▶ Checkpoint ──building──▶ Classifier

Reading never runs code that a file brings; writing is atomic. Names are imported when they are used: what can be refused by
a file's first bytes is refused before torch is imported.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaussport.models.checkpoint.building import build_classifier
    from gaussport.models.checkpoint.contents import AnyCheckpoint, Checkpoint, SequenceCheckpoint
    from gaussport.models.checkpoint.reading import read_any_checkpoint, read_checkpoint
    from gaussport.models.checkpoint.surveying import Survey, survey_checkpoint
    from gaussport.models.checkpoint.wishes import Wishes
    from gaussport.models.checkpoint.writing import write_checkpoint

__all__ = [
    "AnyCheckpoint",
    "Checkpoint",
    "SequenceCheckpoint",
    "Survey",
    "Wishes",
    "build_classifier",
    "read_any_checkpoint",
    "read_checkpoint",
    "survey_checkpoint",
    "write_checkpoint",
]

_HOMES = {
    "AnyCheckpoint": "contents",
    "Checkpoint": "contents",
    "SequenceCheckpoint": "contents",
    "Survey": "surveying",
    "Wishes": "wishes",
    "build_classifier": "building",
    "read_any_checkpoint": "reading",
    "read_checkpoint": "reading",
    "survey_checkpoint": "surveying",
    "write_checkpoint": "writing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
