"""`gaussport bench BUNDLE…`: what bundles cost on this machine; with `--url`, what a server answers under load."""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gaussport.serving.commands.query import KEY_VARIABLE

if TYPE_CHECKING:
    from gaussport.serving.bench.document import Document, LoadFigures, SessionFigures

_DOCUMENT, _PAGE = "bench.json", "bench.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundles", nargs="*", type=Path, metavar="BUNDLE", help="bundle folders or zips, measured in turns")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16], metavar="N", help="batch sizes (default: 1 2 4 8 16)"
    )
    parser.add_argument("--provider", default="cpu", metavar="NAME", help="execution provider (default: cpu)")
    parser.add_argument("--threads", type=int, metavar="N", help="of the session (default: the cores this process may use)")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="at most, for each batch size (default: 15)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="for each batch size, or each load (default: 5)"
    )
    load = parser.add_argument_group("a server", f"whose key, where it wants one, is in the variable {KEY_VARIABLE}")
    load.add_argument("--url", metavar="URL", help="measure the server there")
    load.add_argument("--images", type=Path, nargs="+", metavar="IMAGE", help="pictures or folders to send, in turn")
    load.add_argument("--model", metavar="NAME", help="which of its models (default: its first)")
    load.add_argument("--connections", type=int, nargs="*", default=None, metavar="N", help="closed loads (default: 1 4 16)")
    load.add_argument("--rate", type=float, nargs="*", default=[], metavar="N", help="open loads: requests a second offered")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help=f"write {_DOCUMENT}, {_PAGE} and plots (PNG) into this folder"
    )
    parser.add_argument("--compare", type=Path, metavar="FILE", help=f"say what changed since that {_DOCUMENT}")
    parser.add_argument("--json", action="store_true", help="print the document instead of tables")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.serving.bench.document import Document, changes, read_document
    from gaussport.serving.bench.machine import this_machine
    from gaussport.serving.bench.tables import show

    _check(arguments)
    earlier = None if arguments.compare is None else read_document(arguments.compare)
    machine = this_machine()
    if earlier is not None and earlier.machine.identity != machine.identity:
        changes(earlier, Document(machine=machine))  # refuses before anything is measured
    document = Document(machine=machine, sessions=tuple(_sessions(arguments)), loads=tuple(_loads(arguments)))
    found = [] if earlier is None else changes(earlier, document)
    if arguments.output is not None:
        _write(document, arguments.output)
    if arguments.json:
        sys.stdout.write(document.model_dump_json(indent=1) + "\n")
    else:
        show(document, found)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be measured before anything is."""
    from gaussport.errors import UsageError
    from gaussport.serving.bench.plots import require_matplotlib

    if not arguments.bundles and not arguments.url:
        raise UsageError("there is nothing to measure: name a bundle, or a server with --url")
    if arguments.url and not arguments.images:
        raise UsageError("--url needs pictures to send: name some with --images")
    if not arguments.url and (arguments.images or arguments.connections or arguments.rate):
        raise UsageError("--images, --connections and --rate are for a server: name it with --url")
    for flag, values in (
        ("--batches", arguments.batches),
        ("--rounds", [arguments.rounds]),
        ("--seconds", [arguments.seconds]),
        ("--connections", arguments.connections or []),
        ("--rate", arguments.rate),
        ("--threads", [arguments.threads or 1]),
    ):
        if not all(value > 0 for value in values):
            raise UsageError(f"{flag} is {' '.join(map(str, values))} but must be above zero")
    if arguments.output is not None:
        require_matplotlib()
        if arguments.output.exists() and not arguments.output.is_dir():
            raise UsageError(f"{arguments.output} is a file: name a folder with --output")


def _sessions(arguments: argparse.Namespace) -> "list[SessionFigures]":
    if not arguments.bundles:
        return []
    from gaussport.export.bundle.store import open_bundle
    from gaussport.serving.bench.session import measure_sessions
    from gaussport.serving.cores import usable_cores

    bundles = [open_bundle(path, check_hashes=False) for path in arguments.bundles]
    threads = arguments.threads or usable_cores()
    return measure_sessions(bundles, arguments.provider, threads, arguments.batches, arguments.rounds, arguments.seconds)


def _loads(arguments: argparse.Namespace) -> "list[LoadFigures]":
    if not arguments.url:
        return []
    from gaussport.serving.bench.load import Load
    from gaussport.serving.client import read_picture
    from gaussport.serving.report import pictures_in, with_progress

    pictures = [read_picture(path) for path in pictures_in(arguments.images)]
    load = Load(arguments.url, pictures, arguments.model, os.environ.get(KEY_VARIABLE))
    connections = arguments.connections if arguments.connections is not None else [] if arguments.rate else [1, 4, 16]
    steps: list[Callable[[], LoadFigures]] = [partial(load.closed, n, arguments.seconds) for n in connections]
    steps += [partial(load.open, rate, arguments.seconds) for rate in arguments.rate]
    return [step() for step in with_progress(steps, len(steps), "measuring")]


def _write(document: "Document", folder: Path) -> None:
    from gaussport.errors import ServingError
    from gaussport.serving.bench.plots import write_plots
    from gaussport.serving.bench.tables import markdown

    try:
        folder.mkdir(parents=True, exist_ok=True)
        plots = write_plots(document, folder)
        pictures = "".join(f"\n![{path.stem}]({path.name})\n" for path in plots)
        (folder / _PAGE).write_text(markdown(document) + pictures, encoding="utf-8")
        partial = folder / f".{_DOCUMENT}.partial"
        partial.write_text(document.model_dump_json(indent=1) + "\n", encoding="utf-8")
        partial.replace(folder / _DOCUMENT)
    except OSError as error:
        raise ServingError(f"{folder} cannot be written: {error.strerror or error}") from error
