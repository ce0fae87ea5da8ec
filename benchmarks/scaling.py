"""How cost grows: with the connections of a server, with the size of a picture.

    python -m benchmarks.scaling [--bundle build/mnist-ssog] [--connections 1 … 512] [--sides 256 … 6144] [--seconds 5]

Rewrites its block and plot in docs/performance.md. Server and client share the cores of this machine. How cost grows with
tokens and with the batch say `python -m benchmarks.models` and `python benchmarks/operators.py`.
"""

import argparse
import io
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from rich.console import Console

from benchmarks import page
from gaussport.models.data.mnist import write_held_out
from gaussport.models.image.prepare import prepare
from gaussport.models.image.preprocess import Preprocessing
from gaussport.serving.bench.document import LoadFigures
from gaussport.serving.bench.load import Load
from gaussport.serving.bench.machine import this_machine
from gaussport.serving.bench.rounds import Timing, interleaved

DIGITS = Path("build/digits")
EXACT = Preprocessing(size=(224, 224), resize_shorter=256)
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=Path("build/mnist-ssog"))
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 4, 16, 64, 256, 512])
    parser.add_argument("--sides", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096, 6144], help="pixels")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of connections (default: 5)")
    parser.add_argument("--no-page", action="store_true", help="print only")
    wish = parser.parse_args()
    machine = this_machine()
    loads = loaded(wish.bundle, wish.connections, wish.seconds)
    sizes = pictures(wish.sides)
    text = f"{machine}.\n\n{connection_table(loads)}\n\n{size_table(sizes)}"
    console.print(text)
    if not wish.no_page:
        page.save_plot(plot(loads, sizes), "scaling")
        page.rewrite(
            "scaling", f"{text}\n\n![Answers and latency by connections, milliseconds by picture size](img/scaling.svg)"
        )


def loaded(bundle: Path, connections: Sequence[int], seconds: float) -> list[LoadFigures]:
    if not DIGITS.exists():
        write_held_out(DIGITS)
    digits = [path.read_bytes() for path in sorted(DIGITS.glob("*/*.png"))[::10]]
    with serving(bundle) as url:
        return [Load(url, digits).closed(number, seconds) for number in connections]


@contextmanager
def serving(bundle: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "gaussport", "serve", str(bundle), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().rpartition(" on ")[2].strip()
        try:
            yield url
        finally:
            server.send_signal(signal.SIGTERM)


def pictures(sides: Sequence[int]) -> dict[int, dict[str, Timing]]:
    """Square JPEGs of one coarse picture and sensor-like noise, prepared for a 224 px model, exact and reduced."""
    found = {}
    for side in sides:
        draw = np.random.default_rng(0)
        coarse = Image.fromarray(draw.integers(0, 256, (9, 9, 3), dtype=np.uint8))
        noisy = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC)).astype(np.float32)
        noisy += draw.normal(0, 4, (side, side, 1)).astype(np.float32)
        buffer = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        data, reduced = buffer.getvalue(), EXACT.model_copy(update={"decoding": "reduced"})
        runs = {"exact": lambda d=data: prepare(d, EXACT), "reduced": lambda d=data, r=reduced: prepare(d, r)}
        found[side] = interleaved(runs, rounds=9, seconds=4)
    return found


def connection_table(loads: Sequence[LoadFigures]) -> str:
    heads = ["connections", "answers/s", "refused", "p50 ms", "p99 ms", "server core ms", "client core ms"]
    rows = []
    for each in loads:
        server = "" if each.server_cpu_ms is None else f"{each.server_cpu_ms:.2f}"
        facts = [f"{each.per_s:,.0f}", f"{each.refused:,}", f"{each.p50_ms:.1f}", f"{each.p99_ms:.1f}"]
        rows.append([str(each.connections), *facts, server, f"{each.client_cpu_ms:.2f}"])
    return page.table(heads, rows, left=0)


def size_table(sizes: dict[int, dict[str, Timing]]) -> str:
    rows = [
        [f"{side:,} × {side:,}", *(f"{timings[way].cpu_ms:.2f}" for way in ("exact", "reduced"))]
        for side, timings in sizes.items()
    ]
    return page.table(["JPEG", "exact, core ms", "reduced, core ms"], rows)


def plot(loads: Sequence[LoadFigures], sizes: dict[int, dict[str, Timing]]) -> plt.Figure:
    plt.rcParams["svg.hashsalt"] = "gaussport"
    figure, (answers, latency, decoding) = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    numbers = [each.connections for each in loads]
    answers.semilogx(numbers, [each.per_s for each in loads], marker="o", markersize=4)
    answers.set(xlabel="connections", ylabel="answers a second", ylim=(0, None))
    for part in ("p50_ms", "p99_ms"):
        latency.loglog(numbers, [getattr(each, part) for each in loads], marker="o", markersize=4, label=part[:3])
    latency.set(xlabel="connections", ylabel="ms")
    for way in ("exact", "reduced"):
        times = [timings[way].cpu_ms for timings in sizes.values()]
        decoding.loglog(list(sizes), times, marker="o", markersize=4, label=way)
    decoding.set(xlabel="side of a square JPEG, pixels", ylabel="core ms to a tensor of 224 × 224")
    for axes in (latency, decoding):
        axes.legend(frameon=False)
    for axes in (answers, latency, decoding):
        axes.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()
