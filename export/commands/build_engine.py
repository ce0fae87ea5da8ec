"""`gaussport build-engine BUNDLE`: build TensorRT engines and put them into the bundle."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gaussport.export.bundle.engines import BUILDERS
from gaussport.export.commands.output import say, shown, write_json
from gaussport.export.wishes import check_plain

if TYPE_CHECKING:
    from gaussport.export.engine.build import Built


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.export.engine.wish import PRECISIONS

    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the folder or .zip to add the engines to")
    parser.add_argument(
        "--builder", choices=BUILDERS, default="tensorrt", help="tensorrt needs the GPU it builds for, tensorrt-rtx none"
    )
    parser.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="SM",
        help="GPU to build for, as sm_86; may be repeated (default: this)",
    )
    parser.add_argument("--precision", choices=PRECISIONS, help="default: the bundle's own")
    parser.add_argument("--min-batch", type=int, default=1, metavar="N", help="smallest batch (default: %(default)s)")
    parser.add_argument("--opt-batch", type=int, metavar="N", help="batch to be fastest at (default: the largest)")
    parser.add_argument("--max-batch", type=int, metavar="N", help="largest batch (default: the bundle's)")
    parser.add_argument("--min-length", type=int, metavar="N", help="of a text: fewest tokens in a row (default: 1)")
    parser.add_argument("--opt-length", type=int, metavar="N", help="tokens to be fastest at (default: as trained)")
    parser.add_argument("--max-length", type=int, metavar="N", help="most tokens (default: the bundle's longest window)")
    parser.add_argument("--timing-cache", type=Path, metavar="FILE", help="measurements to take over from build to build")
    parser.add_argument(
        "--without-plugins", action="store_true", help="build the function bodies instead of our plugins, to compare"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compile one way to run each kernel, not all that TensorRT may choose from",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the engine if the bundle has it")
    parser.add_argument("--json", action="store_true", help="print what was built as JSON")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.export.engine.architectures import parse_architecture
    from gaussport.export.engine.build import build_engines
    from gaussport.export.engine.wish import Wish

    check_plain(arguments.bundle)
    wish = Wish(
        builder=arguments.builder,
        architectures=tuple(parse_architecture(text) for text in arguments.arch),
        precision=arguments.precision,
        least_batch=arguments.min_batch,
        best_batch=arguments.opt_batch,
        most_batch=arguments.max_batch,
        least_length=arguments.min_length,
        best_length=arguments.opt_length,
        most_length=arguments.max_length,
        timing_cache=arguments.timing_cache,
        plugins=not arguments.without_plugins,
        quick=arguments.quick,
        overwrite=arguments.overwrite,
    )
    console = Console(stderr=True, highlight=False)
    bundle, built = build_engines(
        arguments.bundle, wish, lambda text: console.print(f"{text} …") if console.is_terminal else None
    )
    for warning in dict.fromkeys(warning for engine in built for warning in engine.warnings):
        console.print(f"[yellow]warning[/yellow] {escape(warning)}", soft_wrap=True)
    if arguments.json:
        write_json({"bundle": shown(bundle.path), "engines": [_as_json(engine) for engine in built]})
        return 0
    _show(built)
    say(f"next: gaussport serve {escape(shown(bundle.path))} --provider {arguments.builder}")
    return 0


def _as_json(engine: "Built") -> dict[str, object]:
    return {
        "name": engine.record.name,
        **engine.record.model_dump(mode="json"),
        "engine_bytes": engine.engine_bytes,
        "layers": engine.summary,
        "warnings": list(engine.warnings),
    }


def _show(built: "list[Built]") -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("engine", "batches", "size", "layers that do the work"):
        table.add_column(heading, overflow="fold")
    for engine in built:
        least, best, most = engine.record.batches
        layers = ", ".join(f"{number} {kind}" for kind, number in engine.summary.items())
        batches = f"{least} to {most}, best at {best}"
        if engine.record.lengths is not None:
            shortest, usual, longest = engine.record.lengths
            batches += f"; {shortest} to {longest} tokens, best at {usual}"
        table.add_row(engine.record.name, batches, f"{engine.engine_bytes / 1e6:.1f} MB", layers)
    Console(highlight=False, emoji=False).print(table)
