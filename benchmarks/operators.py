"""Time and peak memory of both operators beside torch's own attention, against the number of tokens.

    python benchmarks/operators.py [--only GMA] [--threads 1 2] [--tokens 196 1024 4096 16384] [--rounds 5]
    python benchmarks/operators.py --docs docs/operators.md     ... and write the table and the plot there

Within a round every backend runs in turn, so that ratios hold when the machine's speed drifts; figures are medians over
rounds, ten times as many below 1,024 tokens. Each runs twice and the second run counts: what the one before it left in the
cache does not matter. On one thread the time is the processor's, which other jobs on the machine do not lengthen; on more it
is the clock's. Peak memory is that of a fresh process that runs one backend once, on one thread, less what it held before.

Writes OUT.json, .md and .svg. What OUT.json holds and is not measured again is kept: a long run may be taken in parts.
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
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
SHORT = {"SeparableGaussianFilter": "SSOG", "LatentMemoryRouting": "GMA"}
BACKENDS = ["sdpa", "torch", "compile", "onnx", "definition"]
TITLES = ["SDPA", "torch", "torch.compile", "ONNX body", "definition"]
MARKS = ("<!-- measured: written by benchmarks/operators.py -->\n", "<!-- end of what was measured -->\n")
Run = Callable[[], object]


@dataclass(frozen=True)
class Measurement:
    """Median milliseconds of one run, and megabytes that it needed at its peak."""

    operator: str
    backend: str
    tokens: int
    threads: int
    milliseconds: float
    megabytes: float | None


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


def backend(name: str, operator: str, threads: int, tokens: int) -> Run:
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
    """Median time of each run over interleaved rounds; in each it runs twice and the second counts."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            began = clock()
            run()
            taken[name].append(1e3 * (clock() - began))
    return {name: statistics.median(times) for name, times in taken.items()}


def peak_megabytes(make: Callable[[int], Run], tokens: int) -> float:
    """Peak resident memory of one run in a process of its own, less what the process held before it. `make` is what can be
    sent there, and gives the run for so many tokens."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (make, tokens))


def _peak(make: Callable[[int], Run], tokens: int) -> float:
    torch.set_num_threads(1)
    make(16)()  # libraries load and allocate on first use
    run = make(tokens)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    Path("/proc/self/clear_refs").write_text("5")  # start counting the peak from here
    run()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return max(0.0, int(line.split()[1]) * 1024 - before) / 1e6


def measure(
    chosen: list[str], tokens: Iterable[int], threads: Iterable[int], rounds: int, names: list[str]
) -> Iterator[list[Measurement]]:
    cases = [(o, n) for o in chosen for n in tokens]
    for operator, count in track(cases, "measuring", console=Console(stderr=True)):
        given = [name for name in names if name != "definition" or count <= DEFINITION_LIMIT]
        # torch.compile keeps its memory in the compiler's process; its peak says nothing of the code.
        memory = {
            name: None if name == "compile" else peak_megabytes(partial(backend, name, operator, 1), count) for name in given
        }
        for used in threads:
            torch.set_num_threads(used)
            runs = {name: backend(name, operator, used, count) for name in given}
            clock = time.process_time if used == 1 else time.perf_counter
            taken = milliseconds(runs, rounds if count >= 1024 else 10 * rounds, clock)
            yield [Measurement(operator, name, count, used, taken[name], memory[name]) for name in given]


def merged(old: Iterable[Measurement], new: Iterable[Measurement]) -> list[Measurement]:
    """All measurements in order, new ones in place of old ones of the same case."""
    by_case = {(m.operator, m.threads, m.tokens, m.backend): m for m in (*old, *new)}
    order = {name: n for n, name in enumerate([*SHORT, *BACKENDS])}
    return [by_case[key] for key in sorted(by_case, key=lambda key: (key[1], order[key[0]], key[2], order[key[3]]))]


def slope(points: list[tuple[int, float]]) -> float:
    """Exponent of a power law through the points; NaN with fewer than two."""
    large = [(n, value) for n, value in points if value > 0]
    if len(large) < 2:
        return math.nan
    return float(np.polyfit(np.log([n for n, _ in large]), np.log([value for _, value in large]), 1)[0])


def markdown(measurements: list[Measurement]) -> str:
    """Milliseconds and megabytes of all backends, a table for each number of threads, and the slopes."""
    lines: list[str] = []
    for threads in sorted({m.threads for m in measurements}):
        cells = {(m.operator, m.tokens, m.backend): m for m in measurements if m.threads == threads}
        lines += [f"**{threads} thread{'s' * (threads > 1)}**, milliseconds · megabytes", ""]
        lines += [f"| operator | tokens | {' | '.join(TITLES)} | torch ÷ SDPA | body ÷ SDPA |", "|---|" + "---:|" * 8]
        for operator, tokens in dict.fromkeys((o, n) for o, n, _ in cells):
            row = [cells.get((operator, tokens, name)) for name in BACKENDS]
            numbers = [cell(m) for m in row] + [ratio(row[n], row[0]) for n in (1, 3)]
            lines.append(f"| {SHORT[operator]} | {tokens:,} | {' | '.join(numbers)} |")
        lines += ["", "| log-log slopes of time · memory | " + " | ".join(TITLES[:4]) + " |", "|---|" + "---:|" * 4]
        for operator in dict.fromkeys(operator for operator, _, _ in cells):
            slopes = []
            for name in BACKENDS[:4]:
                found = [m for (o, _, b), m in cells.items() if (o, b) == (operator, name)]
                by_memory = [(m.tokens, m.megabytes) for m in found if m.megabytes is not None]
                both = slope([(m.tokens, m.milliseconds) for m in found]), slope(by_memory)
                slopes.append(" · ".join("—" if math.isnan(x) else f"{x:.2f}" for x in both))
            lines.append(f"| {SHORT[operator]} | {' | '.join(slopes)} |")
        lines.append("")
    return "\n".join(lines)


def cell(m: Measurement | None) -> str:
    if m is None:
        return "—"
    digits = 2 if m.milliseconds < 10 else 1 if m.milliseconds < 100 else 0
    memory = "" if m.megabytes is None else f" · {m.megabytes:.1f}"
    return f"{m.milliseconds:,.{digits}f}{memory}"


def ratio(m: Measurement | None, sdpa: Measurement | None) -> str:
    return "—" if m is None or sdpa is None else f"{m.milliseconds / sdpa.milliseconds:.2g}"


def plot(measurements: list[Measurement], path: Path) -> None:
    matplotlib.rcParams["svg.hashsalt"] = "gaussport"  # equal measurements give equal files
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True)
    threads = min(m.threads for m in measurements)
    for column, operator in enumerate(SHORT):
        for row, unit in enumerate(("milliseconds", "megabytes")):
            axis = axes[row][column]
            for name, title in zip(BACKENDS, TITLES, strict=True):
                given = [m for m in measurements if (m.operator, m.backend, m.threads) == (operator, name, threads)]
                points = [(m.tokens, value) for m in given if (value := getattr(m, unit)) is not None]
                axis.loglog([n for n, _ in points], [value for _, value in points], "o-", label=title)
            axis.set(title=operator if row == 0 else "", xlabel="tokens" if row else "", ylabel=unit)
            axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.suptitle(f"{threads} thread{'s' * (threads > 1)}")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def write(measurements: list[Measurement], output: Path, docs: Path | None) -> str:
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__}
    document = {"machine": machine, "measurements": [asdict(m) for m in measurements]}
    output.with_suffix(".json").write_text(json.dumps(document, indent=1))
    table = markdown(measurements)
    output.with_suffix(".md").write_text(table)
    plot(measurements, output.with_suffix(".svg"))
    if docs is not None:
        text = docs.read_text()
        before, rest = text.split(MARKS[0])
        docs.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{rest.split(MARKS[1])[1]}")
        (docs.parent / "img" / "operators.svg").write_bytes(output.with_suffix(".svg").read_bytes())
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SHORT.values(), help="one operator instead of both")
    parser.add_argument("--tokens", type=int, nargs="*", default=[196, 1024, 4096, 16384], help="square numbers")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--docs", type=Path, help="a page with this benchmark's marks, to write the table and the plot to")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/operators"))
    arguments = parser.parse_args()
    if any(math.isqrt(count) ** 2 != count for count in arguments.tokens):
        parser.error("--tokens must be square numbers, since the grid is square")
    if arguments.docs is not None and any(arguments.docs.read_text().count(mark) != 1 for mark in MARKS):
        parser.error(f"{arguments.docs} does not hold the marks between which the table goes")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    stored = arguments.output.with_suffix(".json")
    known = [Measurement(**m) for m in json.loads(stored.read_text())["measurements"]] if stored.exists() else []
    chosen = [name for name, short in SHORT.items() if arguments.only in (None, short)]
    names = [name for name in BACKENDS if name == "sdpa" or name in arguments.backends]
    table = write(known, arguments.output, arguments.docs) if known else ""
    for measured in measure(chosen, arguments.tokens, arguments.threads, arguments.rounds, names):
        known = merged(known, measured)
        table = write(known, arguments.output, arguments.docs)
    Console(soft_wrap=True).print(table, highlight=False)


if __name__ == "__main__":
    main()
