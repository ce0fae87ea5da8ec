"""A run's state after an epoch, kept beside its output so that a killed run goes on where it was."""

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.writing import write_atomically
from gaussport.models.training.settings import TrainingSettings


def state_path(output: Path) -> Path:
    """Where the state of the run that will write `output` is kept."""
    return output.with_name(output.name + ".state")


def save_state(
    path: Path, run: dict[str, Any], epochs_done: int, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write the state after `epochs_done` epochs of the run that `run` describes (see `describe`)."""
    buffer = io.BytesIO()
    state = {"run": run, "epochs_done": epochs_done, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())


def load_state(path: Path, run: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Put the saved state back and return how many epochs it has done.

    Raises:
        CheckpointError: there is no state, it is damaged, or it is that of a run with other settings or data.
    """
    if not path.is_file():
        raise CheckpointError(
            f"there is nothing to resume: {path.name} is missing beside the output; train without --resume"
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        theirs = dict(state["run"])
        differing = [name for name, value in run.items() if theirs.get(name) != value]
        if not differing:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            return int(state["epochs_done"])
    except Exception as error:
        raise CheckpointError(f"{path.name} cannot be resumed from, it is damaged: delete it and train again") from error
    name = differing[0]
    raise CheckpointError(
        f"{path.name} is of a run with {name} = {theirs.get(name)}, not {run[name]}: give the same options"
    )


def describe(settings: TrainingSettings, **more: Any) -> dict[str, Any]:
    """What must agree for a resumed run to be the same run, as plain values."""
    options = asdict(settings)
    augmentation = options.pop("augmentation")
    return {**options, **{f"augmentation.{name}": value for name, value in augmentation.items()}, **more}
