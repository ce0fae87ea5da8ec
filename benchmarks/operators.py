"""Time and peak memory of both operators beside torch's own attention, against the number of tokens.

    python benchmarks/operators.py [--threads 1 2] [--tokens 196 1024 4096 16384] [--rounds 5] [-o build/bench/operators]

Within a round every backend runs once, so that ratios hold when the machine's speed drifts; figures are medians over rounds.
On one thread the time is the processor's, which other jobs on the machine do not lengthen; on more it is the clock's.
Peak memory is that of a fresh process that runs one backend once, less what it held before. Writes OUT.json, .md and .svg.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gaussport.onnx_runtime import onnxruntime
from gaussport.plugins import DOMAIN
from gaussport.plugins.latent_memory_routing import definition as routing_definition
from gaussport.plugins.latent_memory_routing.torch_op import latent_memory_routing
from gaussport.plugins.onnx_registry import attach_bodies, onnx_operators
from gaussport.plugins.separable_gaussian_filter import definition as filter_definition
from gaussport.plugins.separable_gaussian_filter.torch_op import separable_gaussian_filter

P, D, R, K, DR = 6, 64, 4, 32, 16  # heads, head width, atoms, components, routing width
DEFINITION_LIMIT = 1024  # tokens; beyond it the float64 definition says nothing new and takes minutes
OPSET = 20
Run = Callable[[], object]


@dataclass(frozen=True)
class Measurement:
    """Median milliseconds of one run, and megabytes that it needed at its peak."""

    operator: str
    backend: str
    tokens: int
    threads: int
    milliseconds: float
    megabytes: float


def operands(operator: str, tokens: int) -> list[Tensor]:
    """Random operands at batch 1: a steered field on a square grid, or a mixture of K components."""
    draw = torch.Generator().manual_seed(0)
    if operator == "SeparableGaussianFilter":
        side = math.isqrt(tokens)
        field = (1, side, side, P, R)
        return [
            torch.randn(1, side, side, P, D, generator=draw),
            torch.randn(*field, 2, generator=draw),
            torch.rand(*field, 2, generator=draw) + 0.5,
            torch.softmax(torch.randn(*field, generator=draw), -1),
        ]
    return [
        *(torch.randn(1, tokens, P, width, generator=draw) for width in (DR, DR, D)),
        torch.randn(P, K, DR, generator=draw),
        torch.rand(P, K, DR, generator=draw) + 0.1,
        torch.log_softmax(torch.randn(P, K, generator=draw), -1),
    ]


def backend(name: str, operator: str, tokens: int, threads: int) -> Run:
    """One run of a backend, ready to be called."""
    given = operands(operator, tokens)
    torch_op = separable_gaussian_filter if operator == "SeparableGaussianFilter" else latent_memory_routing
    if name == "sdpa":
        heads = torch.randn(1, P, tokens, D, generator=torch.Generator().manual_seed(0))
        return lambda: scaled_dot_product_attention(heads, heads, heads)
    if name == "torch":
        return lambda: torch_op(*given)
    if name == "compile":
        compiled = torch.compile(torch_op)
        return lambda: compiled(*given)
    if name == "onnx":
        return onnx_run(operator, given, threads)
    arrays = [tensor.numpy() for tensor in given]
    if operator == "SeparableGaussianFilter":
        return lambda: filter_definition.separable_gaussian_filter(*arrays)
    return lambda: routing_definition.latent_memory_routing(*arrays)


def onnx_run(operator: str, given: list[Tensor], threads: int) -> Run:
    """The operator's function body in ONNX Runtime, for these operands with a dynamic batch."""
    session, feed = onnx_session(operator, given, threads, onnxruntime.SessionOptions())
    return lambda: session.run(None, feed)


def onnx_session(
    operator: str, given: list[Tensor], threads: int, options: onnxruntime.SessionOptions
) -> tuple[onnxruntime.InferenceSession, dict[str, NDArray[np.float32]]]:
    """The body's session and its feed."""
    names = [operand.name for operand in onnx_operators()[operator].operator.operands][: len(given)]
    node = onnx.helper.make_node(operator, names, ["output"], domain=DOMAIN)
    shapes = [["batch", *x.shape[1:]] if x.shape[0] == 1 else list(x.shape) for x in given]
    inputs = [onnx.helper.make_tensor_value_info(n, 1, shape) for n, shape in zip(names, shapes, strict=True)]
    outputs = [onnx.helper.make_tensor_value_info("output", 1, None)]
    graph = onnx.helper.make_graph([node], operator, inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)
    attach_bodies(model)
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session, {name: tensor.numpy() for name, tensor in zip(names, given, strict=True)}


def milliseconds(runs: dict[str, Run], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median time of each run over interleaved rounds, after a warm-up."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for counted in [False] + [True] * rounds:
        for name, run in runs.items():
            began = clock()
            run()
            if counted:
                taken[name].append(1e3 * (clock() - began))
    return {name: statistics.median(times) for name, times in taken.items()}


def peak_megabytes(name: str, operator: str, tokens: int) -> float:
    """Peak resident memory of one run in a process of its own, less what the process held before it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (name, operator, tokens))


def _peak(name: str, operator: str, tokens: int) -> float:
    torch.set_num_threads(1)
    backend(name, operator, 16, 1)()  # libraries load and allocate on first use
    run = backend(name, operator, tokens, 1)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    Path("/proc/self/clear_refs").write_text("5")  # start counting the peak from here
    run()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return max(0.0, int(line.split()[1]) * 1024 - before) / 1e6


def measure(tokens: Iterable[int], threads: Iterable[int], rounds: int, names: list[str]) -> list[Measurement]:
    measurements = []
    cases = [(o, n) for o in ("SeparableGaussianFilter", "LatentMemoryRouting") for n in tokens]
    for operator, count in track(cases, "measuring", console=Console(stderr=True)):
        chosen = [name for name in names if name != "definition" or count <= DEFINITION_LIMIT]
        # torch.compile keeps its memory in the compiler's process; its peak says nothing of the code.
        memory = {name: math.nan if name == "compile" else peak_megabytes(name, operator, count) for name in chosen}
        for used in threads:
            torch.set_num_threads(used)
            runs = {name: backend(name, operator, count, used) for name in chosen}
            clock = time.process_time if used == 1 else time.perf_counter
            for name, taken in milliseconds(runs, rounds, clock).items():
                measurements.append(Measurement(operator, name, count, used, taken, memory[name]))
    return measurements


def slope(points: list[tuple[int, float]]) -> float:
    """Exponent of a power law through the points, from 1,024 tokens on; NaN with fewer than two."""
    large = [(n, value) for n, value in points if n >= 1024 and value > 0]
    if len(large) < 2:
        return math.nan
    return float(np.polyfit(np.log([n for n, _ in large]), np.log([value for _, value in large]), 1)[0])


def markdown(measurements: list[Measurement]) -> str:
    lines = []
    for operator, threads in sorted({(m.operator, m.threads) for m in measurements}, reverse=True):
        chosen = [m for m in measurements if (m.operator, m.threads) == (operator, threads)]
        sdpa = {m.tokens: m.milliseconds for m in chosen if m.backend == "sdpa"}
        lines += [f"\n**{operator}**, {threads} thread{'s' * (threads > 1)}\n"]
        lines += ["| backend | tokens | ms | ÷ SDPA | peak MB |", "|---|---:|---:|---:|---:|"]
        for m in chosen:
            ratio = m.milliseconds / sdpa[m.tokens]
            lines.append(f"| {m.backend} | {m.tokens:,} | {m.milliseconds:.2f} | {ratio:.3f} | {m.megabytes:.1f} |")
        for name in dict.fromkeys(m.backend for m in chosen):
            by_time = slope([(m.tokens, m.milliseconds) for m in chosen if m.backend == name])
            by_memory = slope([(m.tokens, m.megabytes) for m in chosen if m.backend == name])
            lines.append(f"\n{name}: log-log slope of time {by_time:.2f}, of memory {by_memory:.2f}")
    return "\n".join(lines) + "\n"


def plot(measurements: list[Measurement], path: Path) -> None:
    operators = ["SeparableGaussianFilter", "LatentMemoryRouting"]
    matplotlib.rcParams["svg.hashsalt"] = "gaussport"  # equal measurements give equal files
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True)
    threads = min(m.threads for m in measurements)
    for column, operator in enumerate(operators):
        for row, unit in enumerate(("milliseconds", "megabytes")):
            axis = axes[row][column]
            for name in dict.fromkeys(m.backend for m in measurements):
                points = [m for m in measurements if (m.operator, m.backend, m.threads) == (operator, name, threads)]
                axis.loglog([m.tokens for m in points], [getattr(m, unit) for m in points], "o-", label=name)
            axis.set(title=operator if row == 0 else "", xlabel="tokens" if row else "", ylabel=unit)
            axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.suptitle(f"{threads} thread{'s' * (threads > 1)}")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[196, 1024, 4096, 16384], help="square numbers")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backends", nargs="+", default=["sdpa", "torch", "compile", "onnx", "definition"])
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/operators"))
    arguments = parser.parse_args()
    if any(math.isqrt(count) ** 2 != count for count in arguments.tokens):
        parser.error("--tokens must be square numbers, since the grid is square")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(["sdpa", *arguments.backends]))
    measurements = measure(arguments.tokens, arguments.threads, arguments.rounds, names)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__}
    document = {"machine": machine, "measurements": [asdict(m) for m in measurements]}
    arguments.output.with_suffix(".json").write_text(json.dumps(document, indent=1))
    table = markdown(measurements)
    arguments.output.with_suffix(".md").write_text(table)
    plot(measurements, arguments.output.with_suffix(".svg"))
    Console().print(table, highlight=False)


if __name__ == "__main__":
    main()
