"""What got slower since the committed baseline of this machine? `make bench-check` runs it; `make test` does not.

    python -m benchmarks.regression [--only NAME …] [--no-instructions] [--write]

Times are processor time over that of a yardstick (a product, exponentials and a sort in NumPy), the least of many rounds in
turns, so that a machine that is slower or busier today changes few ratios. What is over too soon for that is counted in
instructions, by valgrind's callgrind where that is installed. Ends with 1 when something got slower. `--write` makes
the figures of today the baseline: on an idle machine, please.
"""

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from gaussport.export.bundle.store import open_bundle
from gaussport.models.image.prepare import prepare
from gaussport.models.image.preprocess import Preprocessing
from gaussport.serving.bench.machine import this_machine
from gaussport.serving.bench.session import random_rows
from gaussport.serving.predictions import best, probabilities
from gaussport.serving.runtime import Runtime

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "benchmarks" / "baseline.json"
SLOWER_TIME, SLOWER_COUNT = 1.10, 1.02
"""From here on a ratio of times, or of instructions, is called slower; below their inverses faster."""
_AT_ONCE = 3
_REPEATS = 5

Work = Callable[[], object]
console = Console(highlight=False, soft_wrap=True)


def yardstick() -> Work:
    """Work whose code is not ours: a product, exponentials and a sort."""
    draw = np.random.default_rng(0)
    factor, row = draw.standard_normal((384, 384), dtype=np.float32), draw.standard_normal(200_000, dtype=np.float32)

    def run() -> None:
        for _ in range(4):
            factor @ factor
            np.exp(row)
        np.sort(row)

    return run


def _session(name: str, batch: int) -> Work:
    runtime = Runtime(open_bundle(ROOT / "build" / name, check_hashes=False), "cpu", threads=1)
    rows = random_rows(runtime.manifest, batch)
    return lambda: runtime.run(rows)


def _picture(width: int, height: int) -> Work:
    """A JPEG of soft shapes with some noise, which compresses about as photographs do."""
    draw = np.random.default_rng(0)
    soft = Image.fromarray(draw.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    noisy = np.asarray(soft).astype(np.int16) + draw.normal(0, 4, (height, width, 1)).astype(np.int16)
    buffer = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
    data, spec = buffer.getvalue(), Preprocessing(size=(224, 224), resize_shorter=256)
    return lambda: prepare(data, spec)


def _answer() -> Work:
    logits = np.random.default_rng(0).standard_normal((1, 1000)).astype(np.float32)
    labels = [f"label {index}" for index in range(1000)]
    return lambda: [best(row, labels, 5) for row in probabilities(logits)]


TIMED: dict[str, Callable[[], Work]] = {
    "mnist-ssog, batch 16": lambda: _session("mnist-ssog", 16),
    "mnist-gma, batch 16": lambda: _session("mnist-gma", 16),
    "JPEG of 500 × 375": lambda: _picture(500, 375),
    "JPEG of 12 megapixels": lambda: _picture(4000, 3000),
}
COUNTED: dict[str, Callable[[], Work]] = {
    "mnist-ssog, batch 1, instructions": lambda: _session("mnist-ssog", 1),
    "mnist-gma, batch 1, instructions": lambda: _session("mnist-gma", 1),
    "JPEG of 500 × 375, instructions": lambda: _picture(500, 375),
    "five best of 1,000, instructions": _answer,
}


def timed(names: list[str], rounds: int) -> dict[str, float]:
    """Processor time of each, in yardsticks."""
    works = {"yardstick": yardstick(), **{name: TIMED[name]() for name in names}}
    least = dict.fromkeys(works, float("inf"))
    for number in range(rounds + 2):
        for name, work in works.items():
            began = time.process_time()
            for _ in range(_AT_ONCE):
                work()
            if number >= 2:  # the first rounds warm up
                least[name] = min(least[name], time.process_time() - began)
    return {name: least[name] / least["yardstick"] for name in names}


def counted(names: list[str]) -> dict[str, float]:
    """Millions of instructions of one run of each, all threads together."""
    return {name: _instructions(name) / _REPEATS for name in names}


def _instructions(name: str) -> float:
    """Start the work under callgrind, which counts nothing until the work is warm: that is when it says so and waits."""
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]
    settings = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [*valgrind, sys.executable, "-m", "benchmarks.regression", "--work", name]
    with subprocess.Popen(command, env={**os.environ, **settings}, cwd=ROOT, **pipes) as process:
        process.stdout.readline()
        subprocess.run(["callgrind_control", "-i", "on", str(process.pid)], check=True, capture_output=True)
        _, said = process.communicate("go\n")
    found = re.search(r"Collected : (\d+)", said)
    if found is None:
        raise SystemExit(f"callgrind counted nothing of {name}: {said[-300:]}")
    return int(found[1]) / 1e6


def work_on(name: str) -> None:
    """The other side of `_instructions`."""
    work = COUNTED[name]()
    for _ in range(2):
        work()
    print("warm", flush=True)  # noqa: T201
    sys.stdin.readline()
    for _ in range(_REPEATS):
        work()
    os._exit(0)  # without the instructions of an orderly end


def compared(before: dict[str, float], now: dict[str, float]) -> int:
    """Print both, and what became of them. Returns how many got slower."""
    table, slower = Table(box=None, pad_edge=False), 0
    for head in ("what", "then", "now", "now ÷ then", ""):
        table.add_column(head, justify="left" if head in ("what", "") else "right")
    for name, value in now.items():
        if name not in before:
            table.add_row(name, "", f"{value:.3f}", "", "new")
            continue
        ratio, limit = value / before[name], SLOWER_COUNT if name in COUNTED else SLOWER_TIME
        verdict = "[red]slower[/]" if ratio > limit else "[green]faster[/]" if ratio < 1 / limit else ""
        slower += ratio > limit
        table.add_row(name, f"{before[name]:.3f}", f"{value:.3f}", f"{ratio:.2f}", verdict)
    console.print(table)
    return slower


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="names that begin so")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--no-instructions", action="store_true", help="times only")
    parser.add_argument("--write", action="store_true", help="make this the baseline")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    wish = parser.parse_args()
    if wish.work:
        work_on(wish.work)
    machine = {"machine": list(this_machine().identity)}
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {**machine, "figures": {}}
    if not wish.write and baseline["machine"] != machine["machine"]:
        console.print(f"{BASELINE.name} is of {baseline['machine']}, this is {machine['machine']}: make one with --write")
        return 2
    chosen = [name for name in (*TIMED, *COUNTED) if not wish.only or name.startswith(tuple(wish.only))]
    now = timed([name for name in chosen if name in TIMED], wish.rounds)
    if wish.no_instructions or shutil.which("valgrind") is None:
        console.print("Instructions are not counted: that takes valgrind.")
    else:
        now |= counted([name for name in chosen if name in COUNTED])
    slower = compared(baseline["figures"], now)
    if wish.write:
        kept = baseline["figures"] if baseline["machine"] == machine["machine"] else {}
        figures = kept | {name: round(value, 4) for name, value in now.items()}
        BASELINE.write_text(json.dumps({**machine, "figures": figures}, indent=1, ensure_ascii=False) + "\n")
        return 0
    console.print(f"{slower} of {len(now)} got slower" if slower else "nothing got slower")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
