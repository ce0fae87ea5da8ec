"""Checkpoints: weights with the configuration, preprocessing and labels that make them a classifier.

    file ──container──▶ format ──torch_file, safetensors_file──▶ Stored ──reading──▶ Checkpoint ──building──▶ Classifier

Reading never runs code that a file brings; writing is atomic.
"""

from gaussport.models.checkpoint.building import build_classifier
from gaussport.models.checkpoint.contents import Checkpoint
from gaussport.models.checkpoint.reading import read_checkpoint
from gaussport.models.checkpoint.writing import write_checkpoint

__all__ = ["Checkpoint", "build_classifier", "read_checkpoint", "write_checkpoint"]
