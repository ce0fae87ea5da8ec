"""The small trainer: enough to train a classifier of any family on two cores, the same way every time.

DataSet ──tensors──▶ levels in memory ──augmentation──▶ batches ──loop──▶ weights ──accuracy──▶ metrics
"""

from gaussport.models.training.accuracy import accuracy
from gaussport.models.training.loop import train
from gaussport.models.training.settings import TrainingSettings
from gaussport.models.training.tensors import PixelTensors, pixel_tensors

__all__ = ["PixelTensors", "TrainingSettings", "accuracy", "pixel_tensors", "train"]
