"""What an export takes, proof and all, an engine of TensorRT-RTX where that is installed, and a server to start: time and
most memory, each in a fresh process.

    python -m benchmarks.exporting [--preset ssog-d384] [--no-page]

The checkpoint has random weights. Rewrites the block `export` in docs/performance.md.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from rich.console import Console

from benchmarks import page
from gaussport.export.bundle.store import open_bundle
from gaussport.models.checkpoint.contents import Checkpoint
from gaussport.models.checkpoint.writing import write_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset
from gaussport.serving.bench.machine import this_machine
from gaussport.serving.bench.session import measure_sessions

ARCHITECTURE = "sm_89"
RTX = find_spec("tensorrt_rtx") is not None
STARTS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="ssog-d384")
    parser.add_argument("--no-page", action="store_true", help="print only")
    wish = parser.parse_args()
    machine = this_machine()
    with TemporaryDirectory() as folder:
        checkpoint, bundle = Path(folder) / f"{wish.preset}.safetensors", Path(folder) / wish.preset
        write_random(checkpoint, wish.preset)
        megabytes = checkpoint.stat().st_size / 1e6
        seconds, cores, peak = command("export", str(checkpoint), "-o", str(bundle))
        built = command("build-engine", str(bundle), "--builder", "tensorrt-rtx", "--arch", ARCHITECTURE) if RTX else None
        ready = serve(bundle, Path(folder) / "bytecode")
        (session,) = measure_sessions([open_bundle(bundle)], "cpu", 1, [1], rounds=3, seconds=1)
    limit = 3 * megabytes + 1000
    start = session.start
    rows = [
        ["export and proof", f"{seconds:.0f} s", f"{cores:.0f} s", f"{peak:,.0f}", f"60 s, {limit:,.0f} MB"],
        ["`serve`, ready", f"{ready:.2f} s", "", "", "2 s"],
        ["a session alone, first answer", f"{start.first_answer_s:.2f} s", "", f"{start.peak_mb:,.0f}", ""],
        ["… before the weights", "", "", f"{start.before_mb:,.0f}", "150 MB"],
    ]
    if built is not None:
        seconds, cores, peak = built
        rows.insert(1, [f"an engine for {ARCHITECTURE}", f"{seconds:.0f} s", f"{cores:.0f} s", f"{peak:,.0f}", ""])
    heads = ["what", "clock", "processor", "MB at most", "wanted less than"]
    text = f"{machine}. {wish.preset}, a checkpoint of {megabytes:.0f} MB.\n\n{page.table(heads, rows)}"
    Console(highlight=False, soft_wrap=True).print(text)
    if not wish.no_page:
        page.rewrite("export", text)


def write_random(path: Path, name: str) -> None:
    torch.manual_seed(0)
    model = Classifier(preset(name))
    labels = tuple(f"class {index}" for index in range(model.config.classes))
    spec = Preprocessing(size=model.config.image_size, resize_shorter=256)
    write_checkpoint(path, Checkpoint(config=model.config, state_dict=model.state_dict(), preprocessing=spec, labels=labels))


def command(*words: str) -> tuple[float, float, float]:
    """Seconds by the clock and of the processor, and megabytes at most, of one command in a process of its own."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "gaussport", *words])
    _, code, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def serve(bundle: Path, bytecode: Path) -> float:
    """Seconds until `gaussport serve` says that it serves, the median of some starts after one that leaves Python's bytecode
    in that folder: an installer leaves it too."""
    return median([_ready(bundle, bytecode) for _ in range(1 + STARTS)][1:])


def _ready(bundle: Path, bytecode: Path) -> float:
    words = [sys.executable, "-m", "gaussport", "serve", str(bundle), "--port", "0"]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own["PYTHONPYCACHEPREFIX"] = str(bytecode)
    began = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=own) as server:
        assert server.stdout is not None
        server.stdout.readline()
        ready = time.monotonic() - began
        server.send_signal(signal.SIGTERM)
    return ready


if __name__ == "__main__":
    main()
