"""The sequence classifier: tokens of any length to classes, whole or as a stream. Needs torch."""

from gaussport.models.sequence.classifier import SequenceClassifier
from gaussport.models.sequence.config import SequenceConfig
from gaussport.models.sequence.presets import sequence_preset

__all__ = ["SequenceClassifier", "SequenceConfig", "sequence_preset"]
