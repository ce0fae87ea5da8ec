"""The `gaussport` command: a table of subcommands, each a module imported only when it is called.

A command module has `add_arguments(parser)` and `run(arguments) -> int`; it imports torch, onnx or the web stack
inside `run`, so that `-h` answers at once and `serve` works where torch is not installed.
"""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from gaussport import __version__
from gaussport.errors import GaussportError

COMMANDS: dict[str, tuple[str, str]] = {
    "export": ("gaussport.export.commands.export", "turn a checkpoint into a verified bundle"),
    "fuse": ("gaussport.export.commands.fuse", "find our operators in somebody's ONNX model, and bundle it with them"),
    "build-engine": ("gaussport.export.commands.build_engine", "build TensorRT engines into a bundle"),
    "verify": ("gaussport.export.commands.verify", "prove a bundle again, against its checkpoint if given"),
    "inspect": ("gaussport.export.commands.inspect", "say what a bundle or a checkpoint holds"),
    "container": ("gaussport.export.commands.container", "write the build context of a bundle's container image"),
    "triton-repository": (
        "gaussport.export.commands.triton_repository",
        "write a bundle as a model of NVIDIA's Triton server",
    ),
    "doctor": ("gaussport.doctor.command", "say what this machine can run, and why not the rest"),
    "serve": ("gaussport.serving.commands.serve", "serve bundles over HTTP"),
    "classify": ("gaussport.serving.commands.classify", "classify pictures with a bundle, without a server"),
    "explain": ("gaussport.serving.commands.explain", "show what a bundle's attention looked at in pictures or texts"),
    "report": ("gaussport.serving.commands.report", "say how well a bundle does: a page, a model card, JSON"),
    "query": ("gaussport.serving.commands.query", "classify pictures or texts through a running server"),
    "bench": ("gaussport.serving.commands.bench", "measure what bundles cost here, or what a server answers under load"),
    "plan": ("gaussport.serving.commands.plan", "say how many replicas a load needs, or machines a million pictures"),
    "train": ("gaussport.models.commands.train", "train a small classifier on digits, pictures or texts"),
}

DESCRIPTION = "From a trained Gaussian-attention classifier to a verified bundle and an HTTP endpoint."
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class Command(Protocol):
    """What a command module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand. Returns 0, 1 (the work failed or the answer is no) or 2 (usage)."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's threads would spin; on busy cores for most of the time
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(named=next((word for word in words if word in COMMANDS), None))
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 2
    command = cast(Command, importlib.import_module(COMMANDS[arguments.command][0]))
    try:
        code = command.run(arguments)
        sys.stdout.flush()  # a full disk is told here, not in a traceback at exit
        return code
    except GaussportError as error:
        print(f"gaussport {arguments.command}: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        print(f"gaussport {arguments.command}: interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) went away; that is its right.
        _discard_output()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _discard_output()
        print(f"gaussport {arguments.command}: the output cannot be written: no space is left", file=sys.stderr)  # noqa: T201
        return 1


def _path(text: str) -> Path:
    """A path that somebody wrote. Python takes the empty one for the working directory, and nobody means that."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: give the path of a file or a folder")
    return Path(text)


def _discard_output() -> None:
    """Let what is still buffered for standard output go nowhere, so that Python does not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(named: str | None) -> argparse.ArgumentParser:
    """The parser with every command's name, and the options of the one that is called."""
    parser = argparse.ArgumentParser(prog="gaussport", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"gaussport {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module, summary) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == named:
            subparser.register("type", Path, _path)
            cast(Command, importlib.import_module(module)).add_arguments(subparser)
    return parser
