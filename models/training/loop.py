"""The training loop. Nothing in it draws from a global random state: an epoch's order and augmentation depend on the
seed and the epoch's number alone, so a resumed run is the same run."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
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

Module = TypeVar("Module", bound=nn.Module)


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


@dataclass(frozen=True)
class Course:
    """What is learned from: `batches(epoch)` are `per_epoch` inputs and targets [B], drawn from nothing but the epoch's
    number; `held_out()` is the accuracy on what is only ever measured."""

    per_epoch: int
    batches: Callable[[int], Iterable[tuple[Tensor, Tensor]]]
    held_out: Callable[[], float]


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
    """Train a new classifier of pictures and return it in eval mode; see `fit`."""
    classifier = new(lambda: Classifier(config), settings.seed)

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = epoch_generator(settings.seed, epoch)
        for indices in torch.randperm(len(pictures), generator=generator).split(settings.batch_size):
            pixels, targets = pictures.batch(indices, spec)
            yield augment(pixels, settings.augmentation, generator), targets

    course = Course(-(-len(pictures) // settings.batch_size), batches, lambda: accuracy(classifier, held_out, spec))
    run = describe(settings, config=config.to_json(), pictures=len(pictures), mean=list(spec.mean), std=list(spec.std))
    fit(classifier, course, settings, run, state, resume, watch)
    return classifier


def fit(
    classifier: nn.Module,
    course: Course,
    settings: TrainingSettings,
    run: dict[str, Any],
    state: Path | None = None,
    resume: bool = False,
    watch: Callable[[Step], None] = lambda step: None,
) -> None:
    """Train the classifier and leave it in eval mode. With `state`, the run's state is saved there after each epoch, under
    what `run` says of it, and with `resume` it goes on from there.

    Raises:
        CheckpointError: there is nothing to resume, or it is another run's.
        DataError: the loss is no longer a number.
    """
    optimizer = optimizer_for(classifier, settings)
    done = load_state(state, run, classifier, optimizer) if state is not None and resume else 0
    steps = settings.epochs * course.per_epoch
    for epoch in range(done, settings.epochs):
        classifier.train()
        loss = float("nan")
        for offset, (inputs, targets) in enumerate(course.batches(epoch)):
            step = epoch * course.per_epoch + offset
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps, settings.warmup_epochs * course.per_epoch, settings.learning_rate)
            loss = _step(classifier, optimizer, inputs, targets, settings)
            watch(Step(epoch + 1, settings.epochs, step + 1, steps, loss))
        if state is not None:
            save_state(state, run, epoch + 1, classifier, optimizer)
        reached = course.held_out()
        watch(Step(epoch + 1, settings.epochs, (epoch + 1) * course.per_epoch, steps, loss, reached))
    classifier.eval()


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """The random numbers of one epoch."""
    return torch.Generator().manual_seed(seed * 1_000_003 + epoch)


def new(build: Callable[[], Module], seed: int) -> Module:
    """A module with the weights that the seed gives it."""
    with torch.random.fork_rng(devices=[]):  # layers initialise themselves from the global state: leave it as it was
        torch.manual_seed(seed)
        return build()


def _step(
    classifier: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    targets: Tensor,
    settings: TrainingSettings,
) -> float:
    optimizer.zero_grad(set_to_none=True)
    loss = cross_entropy(classifier(inputs), targets, label_smoothing=settings.label_smoothing)
    if not torch.isfinite(loss):
        raise DataError(f"the training diverged (the loss is {loss.item()}): lower --lr")
    loss.backward()
    clip_grad_norm_(classifier.parameters(), settings.clip_norm)
    optimizer.step()
    return float(loss.detach())
