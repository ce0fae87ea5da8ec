"""The training loop. Nothing in it draws from a global random state: an epoch's order and augmentation depend on the
seed and the epoch's number alone, so a resumed run is the same run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from gaussport.errors import DataError
from gaussport.models.classifier import Classifier
from gaussport.models.config import ClassifierConfig
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.training.accuracy import accuracy
from gaussport.models.training.augmentation import augment
from gaussport.models.training.optimizer import optimizer_for
from gaussport.models.training.schedule import learning_rate
from gaussport.models.training.settings import TrainingSettings
from gaussport.models.training.state import describe, load_state, save_state
from gaussport.models.training.tensors import PixelTensors


@dataclass(frozen=True)
class Step:
    """Where a run is: after `step` of `steps` optimiser steps, in epoch `epoch` (from 1) of `epochs`. `held_out` is the
    accuracy, known at the end of an epoch."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    held_out: float | None = None


def train(
    config: ClassifierConfig,
    pictures: PixelTensors,
    held_out: PixelTensors,
    spec: Preprocessing,
    settings: TrainingSettings,
    state: Path | None = None,
    resume: bool = False,
    watch: Callable[[Step], None] = lambda step: None,
) -> Classifier:
    """Train a new classifier and return it in eval mode. With `state`, the run's state is saved there after each epoch,
    and with `resume` it goes on from there.

    Raises:
        CheckpointError: there is nothing to resume, or it is another run's.
        DataError: the loss is no longer a number.
    """
    classifier = _new_classifier(config, settings.seed)
    optimizer = optimizer_for(classifier, settings)
    run = describe(settings, config=config.to_json(), pictures=len(pictures), mean=list(spec.mean), std=list(spec.std))
    done = load_state(state, run, classifier, optimizer) if state is not None and resume else 0
    per_epoch = -(-len(pictures) // settings.batch_size)
    steps = settings.epochs * per_epoch
    for epoch in range(done, settings.epochs):
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + epoch)
        classifier.train()
        loss = float("nan")
        order = torch.randperm(len(pictures), generator=generator)
        for offset, indices in enumerate(order.split(settings.batch_size)):
            step = epoch * per_epoch + offset
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps, settings.warmup_epochs * per_epoch, settings.learning_rate)
            pixels, targets = pictures.batch(indices, spec)
            loss = _step(classifier, optimizer, augment(pixels, settings.augmentation, generator), targets, settings)
            watch(Step(epoch + 1, settings.epochs, step + 1, steps, loss))
        if state is not None:
            save_state(state, run, epoch + 1, classifier, optimizer)
        reached = accuracy(classifier, held_out, spec)
        watch(Step(epoch + 1, settings.epochs, (epoch + 1) * per_epoch, steps, loss, reached))
    return classifier.eval()


def _new_classifier(config: ClassifierConfig, seed: int) -> Classifier:
    with torch.random.fork_rng(devices=[]):  # layers initialise themselves from the global state: leave it as it was
        torch.manual_seed(seed)
        return Classifier(config)


def _step(
    classifier: Classifier,
    optimizer: torch.optim.Optimizer,
    pixels: torch.Tensor,
    targets: torch.Tensor,
    settings: TrainingSettings,
) -> float:
    optimizer.zero_grad(set_to_none=True)
    loss = cross_entropy(classifier(pixels), targets, label_smoothing=settings.label_smoothing)
    if not torch.isfinite(loss):
        raise DataError(f"the training diverged (the loss is {loss.item()}): lower --lr")
    loss.backward()
    clip_grad_norm_(classifier.parameters(), settings.clip_norm)
    optimizer.step()
    return float(loss.detach())
