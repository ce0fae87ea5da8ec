"""Size, CPU speed and accuracy of every precision: the zoo on its held-out digits, and a d256 model of random weights.

    python benchmarks/precision.py [--threads 1] [--rounds 15] [--models mnist-ssog mnist-gma ssog-d256] [-o OUT]

Speed is ONNX Runtime's on the CPU: milliseconds of processor time a picture, which other jobs on the machine disturb less
than they do the clock, medians over rounds in which every precision runs once. bfloat16 has no CPU kernels: its answers come
from the model rounded at every step, and it has no speed here. `library` rows are onnxruntime.quantization's own static Q/DQ
with the same pictures. Random weights have no accuracy: there it is agreement on synthetic scenes, and says only that the
conversion keeps the function. Writes OUT.json and OUT.md.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from gaussport.export.calibration.pictures import Pictures, labelled, unlabelled
from gaussport.export.calibration.ranges import measured_ranges
from gaussport.export.calibration.thresholds import METHODS
from gaussport.export.model_file import serialize
from gaussport.export.onnx_export import export_onnx, pictures_of
from gaussport.export.passes import operate
from gaussport.export.precision.accuracy import classes_of
from gaussport.export.precision.casting import narrow
from gaussport.export.precision.formats import FORMATS
from gaussport.export.precision.quantization import quantizable, quantize
from gaussport.export.precision.runners import has_cpu_kernels, session_of
from gaussport.export.probes import natural
from gaussport.export.progress import unwatched
from gaussport.export.session import Session
from gaussport.models.checkpoint import build_classifier, read_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.presets import preset
from gaussport.onnx_runtime import onnxruntime

ZOO = Path(__file__).parents[1] / "models" / "zoo"
CALIBRATION = 512  # pictures
BATCHES = (1, 32)


@dataclass(frozen=True)
class Subject:
    """A float32 graph with the pictures that it is calibrated and measured with; without targets where there are none."""

    name: str
    model: onnx.ModelProto
    calibration: Pictures
    pictures: Pictures


@dataclass(frozen=True)
class Row:
    """One precision of one model. `milliseconds` are for one picture, by batch size; none where no CPU kernels exist."""

    model: str
    precision: str
    bytes: int
    milliseconds: dict[int, float]
    accuracy: float | None
    agreement: float


def from_zoo(name: str) -> Subject:
    checkpoint = read_checkpoint(ZOO / f"{name}.safetensors")
    spec = checkpoint.preprocessing
    model = export_onnx(build_classifier(checkpoint), [pictures_of(spec.tensor_shape)])
    pictures = labelled("mnist", spec, checkpoint.labels)
    return Subject(name, model, unlabelled("mnist", spec, CALIBRATION), pictures)


def of_random_weights(name: str) -> Subject:
    """A preset with every parameter moved from its initialisation, so that gates and probes do something."""
    torch.manual_seed(0)
    module = Classifier(preset(name)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    shape = (module.config.channels, *module.config.image_size)
    return Subject(name, export_onnx(module, [pictures_of(shape)]), scenes(shape, 0, 64), scenes(shape, 1, 128))


def scenes(shape: tuple[int, int, int], seed: int, count: int) -> Pictures:
    """Pictures with the spectrum of natural ones, from −1 to 1."""

    def pixels(index: int) -> NDArray[np.float32]:
        return (2 * natural(shape, np.random.default_rng([seed, index])) - 1).astype(np.float32)

    return Pictures("synthetic scenes", count, pixels)


def conversions(subject: Subject) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Every precision of the model."""
    yield "fp32", subject.model
    for name, format in FORMATS.items():
        yield name, operate(subject.model, lambda graph, format=format: narrow(graph, format))
    names = sorted({node.inputs[0].name for node in quantizable(gs.import_onnx(subject.model)).values()})
    for method in METHODS:
        ranges = measured_ranges(subject.model, names, subject.calibration, method, unwatched)
        yield f"int8 {method}", operate(subject.model, lambda graph, ranges=ranges: quantize(graph, ranges))
    yield "int8 library", by_the_library(subject)


def by_the_library(subject: Subject) -> onnx.ModelProto:
    """What onnxruntime.quantization makes of the same linear layers: symmetric, per channel, percentile."""
    from onnxruntime import quantization  # noqa: TID251 - after gaussport's own import, which keeps telemetry off

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter({"pixels": batch} for batch in subject.calibration.batches())

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            return next(self.feeds, None)

    logging.getLogger().setLevel(logging.ERROR)  # it advises a pre-processing that would inline the bodies
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        before.write_bytes(serialize(subject.model))
        quantization.quantize_static(
            before,
            after,
            Reader(),
            per_channel=True,
            op_types_to_quantize=["MatMul"],
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod.Percentile,
            extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "CalibPercentile": 99.999},
        )
        return onnx.load(after)


def measured(subject: Subject, rounds: int) -> list[Row]:
    models = dict(conversions(subject))
    answers = {name: classes_of(session_of(model).run, subject.pictures, unwatched, name) for name, model in models.items()}
    speeds = milliseconds({n: Session(serialize(m)) for n, m in models.items() if has_cpu_kernels(m)}, subject, rounds)
    targets = np.asarray(subject.pictures.targets)
    return [
        Row(
            subject.name,
            name,
            len(serialize(model)),
            speeds.get(name, {}),
            float(np.mean(answers[name] == targets)) if len(targets) else None,
            float(np.mean(answers[name] == answers["fp32"])),
        )
        for name, model in models.items()
    ]


def milliseconds(sessions: dict[str, Session], subject: Subject, rounds: int) -> dict[str, dict[int, float]]:
    """Median processor time a picture for each batch size, over interleaved rounds after a warm-up."""
    found: dict[str, dict[int, float]] = {name: {} for name in sessions}
    for size in BATCHES:
        pixels = np.stack([subject.pictures.pixels(index) for index in range(size)])
        taken: dict[str, list[float]] = {name: [] for name in sessions}
        for counted in [False] + [True] * rounds:
            for name, session in sessions.items():
                began = time.process_time()
                session.run(pixels)
                if counted:
                    taken[name].append(1e3 * (time.process_time() - began) / size)
        for name, times in taken.items():
            found[name][size] = statistics.median(times)
    return found


HEAD = (
    "precision",
    "bytes",
    "÷ fp32",
    "CPU ms, batch 1",
    "CPU ms a picture, batch 32",
    "÷ fp32",
    "accuracy",
    "drop (points)",
    "same answer",
)


def markdown(rows: list[Row]) -> str:
    """One table for each model."""
    lines = []
    for model in dict.fromkeys(row.model for row in rows):
        chosen = [row for row in rows if row.model == model]
        lines += [f"\n**{model}**\n", f"| {' | '.join(HEAD)} |", "|---|" + "---:|" * (len(HEAD) - 1)]
        lines += [f"| {' | '.join(cells(row, chosen[0]))} |" for row in chosen]
    return "\n".join(lines) + "\n"


def cells(row: Row, base: Row) -> list[str]:
    """One line of the table; `base` is the float32 row."""
    one, many = (f"{row.milliseconds[size]:.2f}" if row.milliseconds else "GPU only" for size in BATCHES)
    ratio = f"{row.milliseconds[32] / base.milliseconds[32]:.2f}" if row.milliseconds else ""
    accuracy, drop = "", ""
    if row.accuracy is not None and base.accuracy is not None:
        accuracy, drop = f"{row.accuracy:.1%}", f"{100 * (base.accuracy - row.accuracy):+.1f}"
    size = [f"{row.bytes:,}", f"{row.bytes / base.bytes:.2f}"]
    return [row.precision, *size, one, many, ratio, accuracy, drop, f"{row.agreement:.1%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", nargs="+", default=["mnist-ssog", "mnist-gma", "ssog-d256"])
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/precision"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = Console(stderr=True)
    rows: list[Row] = []
    for name in track(arguments.models, "measuring", console=console):
        zoo = (ZOO / f"{name}.safetensors").exists()
        rows += measured(from_zoo(name) if zoo else of_random_weights(name), arguments.rounds)
    machine = {
        "processor": next((x for x in _cpu_lines() if x), platform.processor()),
        "threads": arguments.threads,
        "onnxruntime": onnxruntime.__version__,
        "load": os.getloadavg()[0],
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "rows": [asdict(row) for row in rows]}
    arguments.output.with_suffix(".json").write_text(json.dumps(document, indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(markdown(rows))
    Console().print(json.dumps(machine), markdown(rows), highlight=False, soft_wrap=True)


def _cpu_lines() -> Iterator[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            yield line.split(":", 1)[1].strip()


if __name__ == "__main__":
    main()
