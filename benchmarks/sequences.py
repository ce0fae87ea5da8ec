"""Time and peak memory of sequence classifiers against the length of the text: GMA, its dot-product twin, and torch's own
attention alone.

    python benchmarks/sequences.py [--lengths 256 1024 4096 16384 65536] [--seconds 3] [-o build/bench/sequences] [--docs]

Each backend meets each length in a fresh process on one thread: it answers one short text, then one of that length as
often as fits into --seconds (once at least); the median is of the processor's time, which other jobs do not lengthen. Peak
memory is what the process held at its peak, less what it held before. `gma` and `dot` are whole classifiers of the size that
the zoo ships, `sdpa` is one layer of torch's scaled_dot_product_attention with their heads. Writes OUT.json, .md and .svg,
with --docs into docs/sequences.md as well.
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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from page import PAGE, PLOTS, rewrite
from rich.console import Console
from rich.progress import track
from torch.nn.functional import scaled_dot_product_attention

from gaussport.models.sequence import SequenceClassifier, sequence_preset

MODELS = {
    "gma": "gma-manpages-bidirectional",
    "gma causal": "gma-manpages",
    "dot": "dot-manpages-bidirectional",
    "dot causal": "dot-manpages",
}
SDPA = "sdpa"
WARM_UP = 64  # tokens: libraries load and allocate on first use
MOST_RUNS = 15
SLOPE_FROM = 1024  # tokens; below, what does not grow with the text takes most of the time
Run = Callable[[], object]


@dataclass(frozen=True)
class Measurement:
    """Median milliseconds of one forward pass over `tokens`, of `runs`, and megabytes that it needed at its peak."""

    backend: str
    tokens: int
    milliseconds: float
    megabytes: float
    runs: int


def backend(name: str, tokens: int) -> Run:
    """One forward pass at batch 1, ready to be called."""
    draw = torch.Generator().manual_seed(0)
    if name == SDPA:
        config = sequence_preset(MODELS["dot"])
        shape = (1, config.attention.heads, tokens, config.attention.head_width(config.dim))
        heads = torch.randn(shape, generator=draw)
        return lambda: scaled_dot_product_attention(heads, heads, heads)
    torch.manual_seed(0)
    model = SequenceClassifier(sequence_preset(MODELS[name])).eval()
    document = torch.randint(0, 256, (1, tokens), generator=draw)
    return lambda: model(document)


def measure(name: str, tokens: int, seconds: float) -> Measurement:
    """Measure in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (name, tokens, seconds))


def _measure(name: str, tokens: int, seconds: float) -> Measurement:
    torch.set_num_threads(1)
    with torch.inference_mode():
        backend(name, WARM_UP)()
        run = backend(name, tokens)
        before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        Path("/proc/self/clear_refs").write_text("5")  # start counting the peak from here
        taken = [_timed(run)]
        peak = _peak_bytes()
        while len(taken) < MOST_RUNS and sum(taken) < seconds:
            taken.append(_timed(run))
    if len(taken) > 2:
        taken = taken[1:]  # the first run of this length asks the system for its memory
    return Measurement(name, tokens, 1e3 * statistics.median(taken), max(0, peak - before) / 1e6, len(taken))


def _timed(run: Run) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _peak_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def slope(points: list[tuple[int, float]]) -> float:
    """Exponent of a power law through the points from SLOPE_FROM tokens on; NaN with fewer than two."""
    large = [(n, value) for n, value in points if n >= SLOPE_FROM and value > 0]
    if len(large) < 2:
        return math.nan
    return float(np.polyfit(np.log([n for n, _ in large]), np.log([value for _, value in large]), 1)[0])


def markdown(found: list[Measurement]) -> str:
    """Tables of times and memory by length, the slopes, and how many times GMA is faster than its twin."""
    names = list(dict.fromkeys(m.backend for m in found))
    at = {(m.backend, m.tokens): m for m in found}
    lines = []
    for unit in ("milliseconds", "megabytes"):
        lines += [f"\n| tokens | {' | '.join(f'{name}, {unit}' for name in names)} |", "|---:|" + "---:|" * len(names)]
        for tokens in dict.fromkeys(m.tokens for m in found):
            numbers = [f"{getattr(at[name, tokens], unit):,.1f}" if (name, tokens) in at else "" for name in names]
            lines.append(f"| {tokens:,} | {' | '.join(numbers)} |")
        slopes = (slope([(m.tokens, getattr(m, unit)) for m in found if m.backend == name]) for name in names)
        lines.append(f"| slope from {SLOPE_FROM:,} | {' | '.join(f'{number:.2f}' for number in slopes)} |")
    lines += ["\n| tokens | gma over dot | gma causal over dot causal |", "|---:|---:|---:|"]
    for tokens in dict.fromkeys(m.tokens for m in found):
        ratios = [
            f"{at[twin, tokens].milliseconds / at[name, tokens].milliseconds:.2f}×" if (twin, tokens) in at else ""
            for name, twin in (("gma", "dot"), ("gma causal", "dot causal"))
        ]
        lines.append(f"| {tokens:,} | {' | '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def plot(found: list[Measurement], path: Path) -> None:
    """Time and memory against length, both axes logarithmic."""
    matplotlib.rcParams["svg.hashsalt"] = "gaussport"  # equal measurements give equal files
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for axis, unit in zip(axes, ("milliseconds", "megabytes"), strict=True):
        for name in dict.fromkeys(m.backend for m in found):
            points = [m for m in found if m.backend == name]
            axis.loglog([m.tokens for m in points], [getattr(m, unit) for m in points], "o-", label=name)
        axis.set(xlabel="tokens", ylabel=unit)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.suptitle("one forward pass, one thread")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024, 4096, 16384, 65536], help="tokens")
    parser.add_argument("--backends", nargs="+", choices=[*MODELS, SDPA], default=[*MODELS, SDPA])
    parser.add_argument("--seconds", type=float, default=3.0, help="of processor time a backend and length")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/sequences"))
    parser.add_argument("--docs", action="store_true", help="put tables and plot into docs/sequences.md")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    cases = [(name, tokens) for tokens in arguments.lengths for name in arguments.backends]
    shown = track(cases, "measuring", console=Console(stderr=True))
    found = [measure(name, tokens, arguments.seconds) for name, tokens in shown]
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__}
    document = {"machine": machine, "measurements": [asdict(m) for m in found]}
    arguments.output.with_suffix(".json").write_text(json.dumps(document, indent=1))
    table = markdown(found)
    arguments.output.with_suffix(".md").write_text(table)
    plot(found, arguments.output.with_suffix(".svg"))
    if arguments.docs:
        rewrite("lengths", table, PAGE.with_name("sequences.md"))
        plot(found, PLOTS / "sequences.svg")
    Console(width=160).print(table, highlight=False)


if __name__ == "__main__":
    main()
