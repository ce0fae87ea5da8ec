"""A whole training run, from a preset's and a data set's name to a checkpoint file, with a progress bar on stderr."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gaussport.errors import UsageError
from gaussport.models.checkpoint import AnyCheckpoint, Checkpoint, SequenceCheckpoint, write_checkpoint
from gaussport.models.checkpoint.description import WINDOW
from gaussport.models.config import ClassifierConfig
from gaussport.models.data import DataSet, data_set
from gaussport.models.data.text_folder import TextDataSet, text_folder
from gaussport.models.presets import names, preset
from gaussport.models.sequence import SequenceConfig, sequence_preset
from gaussport.models.sequence.presets import sequence_names
from gaussport.models.text import Tokenization
from gaussport.models.training.accuracy import accuracy
from gaussport.models.training.loop import Step, train
from gaussport.models.training.sequences import beginnings_only, sequence_accuracy, train_on_sequences
from gaussport.models.training.settings import Augmentation, TrainingSettings
from gaussport.models.training.state import state_path
from gaussport.models.training.tensors import pixel_tensors
from gaussport.models.training.token_rows import TokenRows


def train_to_file(
    preset_name: str, data_name: str, output: Path, options: dict[str, Any], threads: int, resume: bool
) -> dict[str, Any]:
    """Train and write the checkpoint `output`; `options` are fields of TrainingSettings. Returns what a person or a
    machine wants to know about the run. The state beside `output` is removed once the checkpoint is whole.

    Raises:
        ConfigurationError, DataError, CheckpointError, UsageError: as the steps do.
    """
    torch.set_num_threads(threads)
    started = time.monotonic()
    checkpoint: AnyCheckpoint
    data: DataSet | TextDataSet
    if preset_name in sequence_names():
        data = text_folder(Path(data_name))
        settings = TrainingSettings(warmup_epochs=1, **options)  # an epoch of documents is long
        sequences = sequence_preset(preset_name, classes=len(data.labels))
        with _bar() as bar:
            checkpoint = _trained_on_texts(sequences, data, settings, state_path(output), resume, bar)
    else:
        if preset_name not in names():
            known = ", ".join([*names(), *sequence_names()])
            raise UsageError(f"there is no preset {preset_name!r}; choose one of {known}")
        pictures = preset(preset_name)
        data = data_set(data_name)
        settings = TrainingSettings(augmentation=Augmentation(mirror=data.mirrors), **options)
        with _bar() as bar:
            config = replace(pictures, classes=len(data.labels))
            checkpoint = _trained(config, data, settings, state_path(output), resume, bar)
    write_checkpoint(output, checkpoint)
    state_path(output).unlink(missing_ok=True)
    return {
        "output": str(output),
        "preset": preset_name,
        "data": data.name,
        "epochs": settings.epochs,
        "batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "seed": settings.seed,
        "threads": threads,
        "parameters": sum(tensor.numel() for tensor in checkpoint.state_dict.values()),
        "trained_on": len(data.train),
        "held_out": len(data.held_out),
        "held_out_accuracy": checkpoint.metrics["held_out_accuracy"],
        "seconds": round(time.monotonic() - started, 1),
    }


def _trained(
    config: ClassifierConfig, data: DataSet, settings: TrainingSettings, state: Path, resume: bool, bar: Progress
) -> Checkpoint:
    def reading(pictures: Iterable[Image.Image], total: int) -> Iterable[Image.Image]:
        return bar.track(pictures, total=total, description="reading pictures")

    pictures, held_out, spec = pixel_tensors(data, config, reading)
    classifier = train(config, pictures, held_out, spec, settings, state, resume, _watched(bar))
    return Checkpoint(
        config=config,
        state_dict={name: tensor.detach().clone() for name, tensor in classifier.state_dict().items()},
        preprocessing=spec,
        labels=data.labels,
        metrics={"held_out_accuracy": accuracy(classifier, held_out, spec), "held_out_pictures": float(len(held_out))},
    )


def _trained_on_texts(
    config: SequenceConfig, data: TextDataSet, settings: TrainingSettings, state: Path, resume: bool, bar: Progress
) -> SequenceCheckpoint:
    spec = Tokenization.of_bytes(WINDOW * config.trained_length)
    documents, held_out = (TokenRows.of(part, spec) for part in (data.train, data.held_out))
    classifier = train_on_sequences(config, documents, held_out, spec, settings, state, resume, _watched(bar))
    one_window = beginnings_only(spec, spec.max_tokens)  # as served, but for what lies beyond the first window
    return SequenceCheckpoint(
        config=config,
        state_dict={name: tensor.detach().clone() for name, tensor in classifier.state_dict().items()},
        preprocessing=spec,
        labels=data.labels,
        metrics={
            "held_out_accuracy": sequence_accuracy(classifier, held_out, one_window),
            "held_out_documents": float(len(held_out)),
        },
    )


def _watched(bar: Progress) -> Callable[[Step], None]:
    task = bar.add_task("training", total=None)

    def watch(step: Step) -> None:
        reached = "" if step.held_out is None else f", {step.held_out:.1%} held out"
        text = f"epoch {step.epoch}/{step.epochs}, loss {step.loss:.3f}"
        if reached:
            bar.console.print(text + reached, highlight=False)
        bar.update(task, completed=step.step, total=step.steps, description=text)

    return watch


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))
