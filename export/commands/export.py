"""`gaussport export CHECKPOINT -o BUNDLE`: turn a checkpoint into a verified bundle."""

import argparse
import json
from pathlib import Path

from rich.markup import escape

from gaussport.export.commands import precision
from gaussport.export.commands.assumptions import assumptions
from gaussport.export.commands.bundle_options import add_bundle_arguments
from gaussport.export.commands.output import say, shown, write_json
from gaussport.export.commands.reading_options import add_reading_arguments, wishes_from
from gaussport.export.opsets import DEFAULT, HIGHEST, LOWEST


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint file or folder")
    add_bundle_arguments(parser, named_after="the checkpoint's file name", printed="the manifest and the report")
    parser.add_argument(
        "--opset", type=int, default=DEFAULT, metavar="N", help=f"ONNX opset, {LOWEST} to {HIGHEST} (default: %(default)s)"
    )
    precision.add_arguments(parser)
    parser.add_argument(
        "--reduced-decoding",
        metavar="FOLDER",
        help="decode large JPEGs at a half, a quarter or an eighth of their size, if these pictures keep their answers",
    )
    add_reading_arguments(parser)
    parser.add_argument("--model", metavar="PACKAGE.MODULE:FACTORY", help="a function that makes a module of your own")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.export.pipeline import export_checkpoint

    bundle = export_checkpoint(
        arguments.checkpoint,
        arguments.output,
        labels=arguments.labels,
        config_path=arguments.config,
        wishes=wishes_from(arguments),
        model=arguments.model,
        name=arguments.name,
        max_batch=arguments.max_batch,
        opset=arguments.opset,
        external_data=arguments.external_data,
        overwrite=arguments.overwrite,
        precision=precision.wish_of(arguments),
        reduced_decoding=arguments.reduced_decoding,
    )
    report = json.loads(bundle.read("report.json"))
    manifest = bundle.manifest
    if arguments.json:
        write_json({"bundle": shown(bundle.path), "manifest": manifest.model_dump(mode="json"), "report": report})
        return 0
    worst = max(report["comparisons"], key=lambda comparison: float(comparison["max_abs"]))
    batches = ", ".join(str(size) for size in sorted({comparison["batch"] for comparison in report["comparisons"]}))
    path = escape(shown(bundle.path))
    say(f"[bold]{path}[/bold]  {manifest.name}, {manifest.family}, {len(manifest.labels)} labels")
    say(f"equals PyTorch at batch {batches}: off by {worst['max_abs']:.1e} at most")
    say(f"tolerance {report['tolerance']['reason']}")
    precision.say_precision(report["precision"])
    if not manifest.takes_text and manifest.preprocessing.decoding == "reduced":
        effect = report["reduced decoding"]
        say(f"reduced decoding: {effect['same_answer']:.2%} of {effect['changed']} pictures keep their answer")
    origin = manifest.provenance
    if origin.weights_key or origin.weights != "raw":
        words = "moving average" if origin.weights == "ema" else "trained parameters"
        say(f"weights: the {words}{escape(f' under {origin.weights_key}' if origin.weights_key else '')}")
    for line in assumptions(manifest):
        say(f"[yellow]assumed[/yellow] {escape(line)}")
    say(f"next: gaussport serve {path}")
    return 0
