"""How many pictures a classifier gets right."""

import torch

from gaussport.models.classifier import Classifier
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.training.tensors import PixelTensors

BATCH = 250


def accuracy(classifier: Classifier, pictures: PixelTensors, spec: Preprocessing) -> float:
    """The fraction of pictures whose largest logit is their class's. Leaves the classifier in the mode it was in."""
    training = classifier.training
    classifier.eval()
    right = 0
    with torch.inference_mode():
        for indices in torch.arange(len(pictures)).split(BATCH):
            pixels, targets = pictures.batch(indices, spec)
            right += int((classifier(pixels).argmax(1) == targets).sum())
    classifier.train(training)
    return right / len(pictures)
