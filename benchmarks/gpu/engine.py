"""Builds engines on this GPU, checks them against ONNX Runtime on the CPU, and times them by batch size.

    python benchmarks/gpu/engine.py                          on a GPU, with gaussport[export] and gaussport[gpu]
    python benchmarks/gpu/engine.py --builder tensorrt-rtx   on an RTX card, with gaussport[export,serve,rtx] and
                                                             onnxruntime-ep-nv-tensorrt-rtx
    python benchmarks/gpu/engine.py --dry                    without a GPU: engines are built for sm_86 with TensorRT-RTX,
                                                             and the CPU runs in their place

Each model is built twice, with our plugins and with its function bodies in TensorRT's own layers, and beside them stands the
dot-product twin of the same size. Times are medians of whole batches as the server runs them: from pixels in host memory to
logits in host memory. The weights are random: neither errors nor times depend on what a model has learned.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gaussport.errors import GaussportError
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.engine.build import build_engines
from gaussport.export.engine.wish import Wish
from gaussport.export.pipeline import export_checkpoint
from gaussport.export.tolerance import FLOORS
from gaussport.models.checkpoint import Checkpoint, write_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset
from gaussport.serving.provider_options import ProviderOptions
from gaussport.serving.runtime import Runtime

MODELS = ("ssog-d256", "dot-d256", "ssog-d384", "gma-d384", "dot-d384")
MODELS_DRY = ("ssog-tiny", "dot-tiny")
BATCHES, BATCHES_DRY = (1, 8, 32, 128), (1, 4)
CHECKED_BATCHES = (1, 2, 7)
WARM_UPS, REPEATS, REPEATS_DRY = 10, 50, 3
DRY_ARCHITECTURE = 86


@dataclass(frozen=True)
class Timing:
    """One engine at one batch size."""

    model: str
    kind: str  # "plugins", "bodies", or "no custom operator"
    precision: str
    batch: int
    latency_ms: float
    images_per_s: float


@dataclass(frozen=True)
class Check:
    """One engine against ONNX Runtime's CPU: the largest difference over the largest logit."""

    model: str
    kind: str
    precision: str
    batch: int
    error: float
    passed: bool


def main() -> int:
    """0 when every engine was built and is right, 1 when one is not."""
    arguments = _arguments()
    console = Console(stderr=True)
    checks: list[Check] = []
    timings: list[Timing] = []
    with TemporaryDirectory() as scratch:
        for name in arguments.models or (MODELS_DRY if arguments.dry else MODELS):
            try:
                bundle = random_bundle(name, Path(scratch), max(_batches(arguments)))
                for precision in arguments.precisions:
                    for kind, runtime in built(bundle, precision, arguments):
                        console.print(f"{name} {precision} {kind}")
                        checks += check(name, kind, precision, bundle, runtime)
                        timings += timed(name, kind, precision, runtime, arguments)
            except GaussportError as error:
                console.print(f"{name}: {error}", soft_wrap=True, markup=False)
                return 1
    _show(checks, timings)
    if arguments.json is not None:
        document = {"checks": [asdict(each) for each in checks], "timings": [asdict(each) for each in timings]}
        arguments.json.write_text(json.dumps(document, indent=1), "utf-8")
    return 0 if all(each.passed for each in checks) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="without a GPU: build, and run on the CPU in the engine's place")
    parser.add_argument("--builder", choices=("tensorrt", "tensorrt-rtx"), default="tensorrt")
    parser.add_argument("--models", nargs="+", metavar="PRESET", help="presets to build (default: the published sizes)")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "fp16"], choices=("fp32", "fp16", "bf16"))
    parser.add_argument("--batches", nargs="+", type=int, metavar="N", help="batch sizes to time")
    parser.add_argument("--cuda-graph", action="store_true", help="replay recorded launches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number")
    return parser.parse_args()


def _batches(arguments: argparse.Namespace) -> Sequence[int]:
    return tuple(arguments.batches or (BATCHES_DRY if arguments.dry else BATCHES))


def random_bundle(name: str, scratch: Path, max_batch: int) -> Path:
    """The bundle of a preset whose every parameter was moved at random, so that no gate is shut and no probe is zero."""
    config = preset(name)
    torch.manual_seed(0)
    model = Classifier(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    preprocessing = Preprocessing(size=config.image_size, mean=(0.5,) * config.channels, std=(0.25,) * config.channels)
    labels = tuple(f"class {index}" for index in range(config.classes))
    write_checkpoint(scratch / f"{name}.safetensors", Checkpoint(config, model.state_dict(), preprocessing, labels))
    most = max(max_batch, *CHECKED_BATCHES)
    return export_checkpoint(scratch / f"{name}.safetensors", scratch / name, max_batch=most).path


def built(path: Path, precision: str, arguments: argparse.Namespace) -> Iterator[tuple[str, Runtime]]:
    """Each kind of engine, built and opened; in a dry run the CPU is opened in its place."""
    builder, architectures = ("tensorrt-rtx", (DRY_ARCHITECTURE,)) if arguments.dry else (arguments.builder, ())
    custom = bool(open_bundle(path).manifest.operators)
    for plugins in (True, False) if custom else (True,):
        wish = Wish(builder, architectures, precision=precision, plugins=plugins, quick=arguments.dry)
        bundle, (engine,) = build_engines(path, wish)
        kind = "no custom operator" if not custom else "plugins" if plugins else "bodies"
        if arguments.dry:
            yield kind, Runtime(bundle, "cpu", threads=1)
        else:
            options = ProviderOptions(engine=engine.record.name, cuda_graph=arguments.cuda_graph)
            yield kind, Runtime(bundle, builder, options=options)


def check(name: str, kind: str, precision: str, path: Path, runtime: Runtime) -> Iterator[Check]:
    """Answers at several batch sizes beside those of the bundle's own model on the CPU."""
    bundle: Bundle = open_bundle(path, check_hashes=False)
    reference = Runtime(bundle, "cpu")
    for batch in CHECKED_BATCHES:
        pixels = _pixels(bundle, batch)
        expected, found = reference.run(pixels), runtime.run(pixels)
        error = float(np.abs(expected - found).max() / np.abs(expected).max())
        yield Check(name, kind, precision, batch, error, bool(np.isfinite(found).all()) and error <= FLOORS[precision])


def timed(name: str, kind: str, precision: str, runtime: Runtime, arguments: argparse.Namespace) -> Iterator[Timing]:
    """Median time of a batch, after warming up."""
    for batch in _batches(arguments):
        pixels = np.zeros((batch, *runtime.manifest.preprocessing.tensor_shape), dtype=np.float32)
        for _ in range(1 if arguments.dry else WARM_UPS):
            runtime.run(pixels)
        seconds = []
        for _ in range(REPEATS_DRY if arguments.dry else REPEATS):
            began = time.perf_counter()
            runtime.run(pixels)
            seconds.append(time.perf_counter() - began)
        median = statistics.median(seconds)
        yield Timing(name, kind, precision, batch, 1e3 * median, batch / median)


def _pixels(bundle: Bundle, batch: int) -> NDArray[np.float32]:
    shape = (batch, *bundle.manifest.preprocessing.tensor_shape)
    return np.random.default_rng(batch).standard_normal(shape, dtype=np.float32)


def _show(checks: Sequence[Check], timings: Sequence[Timing]) -> None:
    console = Console(file=sys.stdout, highlight=False, width=120)
    table = Table(title="largest difference from ONNX Runtime's CPU, over the largest logit", title_justify="left", box=None)
    for heading in ("model", "built from", "precision", "batch", "error", ""):
        table.add_column(heading)
    for each in checks:
        verdict = "ok" if each.passed else f"over {FLOORS[each.precision]:.0e}"
        table.add_row(each.model, each.kind, each.precision, str(each.batch), f"{each.error:.1e}", verdict)
    console.print(table)
    table = Table(title="median time of a batch, host memory to host memory", title_justify="left", box=None)
    for heading in ("model", "built from", "precision", "batch", "ms", "images/s"):
        table.add_column(heading, justify="right" if heading in ("batch", "ms", "images/s") else "left")
    for row in timings:
        numbers = (str(row.batch), f"{row.latency_ms:.3f}", f"{row.images_per_s:.0f}")
        table.add_row(row.model, row.kind, row.precision, *numbers)
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(main())
