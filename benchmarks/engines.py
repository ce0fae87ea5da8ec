"""`python benchmarks/engines.py [PAGE]`: build every model for every architecture and precision with TensorRT-RTX, no GPU.

Each attention must become a plugin and each precision must be what TensorRT typed, or the build fails. The table goes
between two marks in PAGE (docs/gpu.md), or is printed. The published sizes have two of their layers: the others are equal.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console

from gaussport.export.engine.build import Built, build_engines
from gaussport.export.engine.wish import Wish
from gaussport.export.pipeline import export_checkpoint
from gaussport.models import zoo
from gaussport.models.checkpoint import Checkpoint, write_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset

ARCHITECTURES = (86, 89, 120)
PRECISIONS = ("fp32", "fp16", "bf16")
ZOO = ("mnist-ssog", "mnist-gma", "mnist-dot")
PRESETS = ("ssog-d256", "ssog-d384", "gma-d384", "dot-d384")
DEPTH = 2
BEGIN, END = "<!-- engines: written by benchmarks/engines.py -->", "<!-- end of engines -->"


def main() -> int:
    """Build all, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", nargs="?", type=Path, metavar="PAGE", help="the page to write the table into")
    parser.add_argument("--models", nargs="+", default=[*ZOO, *PRESETS], metavar="NAME", help="default: all")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    rows = []
    with TemporaryDirectory() as scratch:
        for name in arguments.models:
            bundle = _bundle(name, Path(scratch))
            for precision in PRECISIONS:
                began = time.perf_counter()
                wish = Wish("tensorrt-rtx", ARCHITECTURES, precision=precision, quick=True)
                _, built = build_engines(bundle, wish)
                console.print(f"{name} {precision}: {time.perf_counter() - began:.0f} s")
                rows.append(_row(name, built))
    table = "\n".join(
        [
            "| model | precision | engine, MB for sm_86 · sm_89 · sm_120 | layers that do the work |",
            "|---|---|---|---|",
            *rows,
        ]
    )
    if arguments.page is None:
        sys.stdout.write(f"{table}\n")
        return 0
    before, _, rest = arguments.page.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    arguments.page.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", "utf-8")
    return 0


def _bundle(name: str, scratch: Path) -> Path:
    if name in ZOO:
        return export_checkpoint(zoo.path(name), scratch / name).path
    torch.manual_seed(0)
    config = replace(preset(name), depth=DEPTH)
    labels = tuple(f"class {index}" for index in range(config.classes))
    checkpoint = Checkpoint(config, Classifier(config).eval().state_dict(), Preprocessing(size=config.image_size), labels)
    write_checkpoint(scratch / f"{name}.safetensors", checkpoint)
    return export_checkpoint(scratch / f"{name}.safetensors", scratch / name, max_batch=32).path


def _row(name: str, built: list[Built]) -> str:
    shown = name if name in ZOO else f"{name}, {DEPTH} layers"
    sizes = " · ".join(f"{engine.engine_bytes / 1e6:.1f}" for engine in built)
    summaries = {tuple(engine.summary.items()) for engine in built}
    assert len(summaries) == 1, "architectures differ in their layers"
    layers = ", ".join(f"{number} {kind}" for kind, number in summaries.pop())
    return f"| {shown} | {built[0].record.precision} | {sizes} | {layers} |"


if __name__ == "__main__":
    raise SystemExit(main())
