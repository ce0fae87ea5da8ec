"""`gaussport export CHECKPOINT -o BUNDLE`: turn a checkpoint into a verified bundle."""

import argparse
import json
from pathlib import Path

from rich.markup import escape

from gaussport.export.commands.output import say, shown, write_json
from gaussport.export.opsets import DEFAULT, HIGHEST, LOWEST
from gaussport.export.wishes import DEFAULT_MAX_BATCH

_ASSUMED = {
    "preprocessing": (
        "preprocessing, which the checkpoint does not state: {0.size[0]}×{0.size[1]}, {0.channels}, mean {0.mean}, "
        "std {0.std}; if it was trained otherwise, answers are wrong: give its own in --config"
    ),
    "labels": "labels 0, 1, 2 …, which the checkpoint does not state: give them with --labels",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a .safetensors file, or one from torch.save")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="BUNDLE", help="the folder, or the .zip, to write"
    )
    parser.add_argument("--name", help="the model's name on the server (default: the checkpoint's file name)")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="class labels, one a line or a JSON list")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the model's configuration, when the checkpoint has none"
    )
    parser.add_argument(
        "--max-batch",
        type=int,
        default=DEFAULT_MAX_BATCH,
        metavar="N",
        help="largest batch to prove and serve (default: %(default)s)",
    )
    parser.add_argument(
        "--opset", type=int, default=DEFAULT, metavar="N", help=f"ONNX opset, {LOWEST} to {HIGHEST} (default: %(default)s)"
    )
    parser.add_argument(
        "--external-data", action="store_true", help="keep the weights beside the graph, as is done above 2 GB anyway"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the bundle at BUNDLE, in one step")
    parser.add_argument("--json", action="store_true", help="print the manifest and the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.export.pipeline import export_checkpoint

    bundle = export_checkpoint(
        arguments.checkpoint,
        arguments.output,
        labels=arguments.labels,
        config_path=arguments.config,
        name=arguments.name,
        max_batch=arguments.max_batch,
        opset=arguments.opset,
        external_data=arguments.external_data,
        overwrite=arguments.overwrite,
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
    for name in manifest.provenance.assumed:
        say(f"[yellow]assumed[/yellow] {escape(_ASSUMED[name].format(manifest.preprocessing))}")
    say(f"next: gaussport serve {path}")
    return 0
