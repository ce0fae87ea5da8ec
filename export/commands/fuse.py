"""`gaussport fuse MODEL.onnx -o BUNDLE`: find our operators in somebody's ONNX model, and bundle it with them."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from gaussport.export.commands.assumptions import assumptions
from gaussport.export.commands.bundle_options import add_bundle_arguments
from gaussport.export.commands.output import say, shown, write_json
from gaussport.export.commands.reading_options import add_picture_arguments, pictures_from

if TYPE_CHECKING:
    from gaussport.export.fusion.rewriting import Refusal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx", help="a classifier that any exporter wrote")
    add_bundle_arguments(parser, named_after="the file's name", printed="the manifest and what was found")
    parser.add_argument("--allow-none", action="store_true", help="write a bundle also when nothing was fused")
    add_picture_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from gaussport.export.fusion.pipeline import NothingFusedError, fuse_model

    try:
        result = fuse_model(
            arguments.model,
            arguments.output,
            labels=arguments.labels,
            pictures=pictures_from(arguments),
            name=arguments.name,
            max_batch=arguments.max_batch,
            external_data=arguments.external_data,
            overwrite=arguments.overwrite,
            allow_none=arguments.allow_none,
        )
    except NothingFusedError as error:
        if arguments.json:
            write_json({"bundle": None, "fused": [], "refused": [asdict(refusal) for refusal in error.refused]})
        else:
            _say_refused(error.refused)
        raise
    manifest = result.bundle.manifest
    if arguments.json:
        found = {key: [asdict(one) for one in getattr(result, key)] for key in ("fused", "refused")}
        write_json({"bundle": shown(result.bundle.path), "manifest": manifest.model_dump(mode="json"), **found})
        return 0
    for fused in result.fused:
        say(f"[green]fused[/green]    {fused.operator} for {escape(fused.value)}, off by {fused.error:.1e}")
    _say_refused(result.refused)
    path = escape(shown(result.bundle.path))
    say(f"[bold]{path}[/bold]  {manifest.name}, {len(result.fused)} fused, {len(manifest.labels)} labels")
    for line in assumptions(manifest):
        say(f"[yellow]assumed[/yellow] {escape(line)}")
    say(f"next: gaussport verify {path}")
    return 0


def _say_refused(refusals: "tuple[Refusal, ...]") -> None:
    for refusal in refusals:
        say(f"[yellow]refused[/yellow]  {escape(refusal.reason)}")
