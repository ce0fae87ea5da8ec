"""The endpoint beside other servers: same ONNX file, same bodies, one core for the server, the client on another.

    python -m venv build/rivals
    build/rivals/bin/pip install litserve mosec bentoml 'uvicorn[standard]' pillow onnxruntime==1.31.1  # the version here
    pip install --no-deps --target build/triton nvidia-pytriton==0.7.0
    python benchmarks/serving --write docs/performance.md

What is not installed is left out and said. Processor time is what counts: it tells on a busy machine too, where rates and
latencies do not.
"""

import argparse
import contextlib
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import triton_rival
from bodies import photographs, tensors
from model import MAX_BATCH, bundle
from page import rewrite, table
from rounds import Contestant, compared, limit_ms, steady
from servers import Bodies, Server, gaussport, rivals, running

from gaussport.export.bundle.store import open_bundle
from gaussport.onnx_runtime import onnxruntime

CONNECTIONS = 16
TENSORS = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", type=Path, default=Path("build/rivals/bin/python"), help="Python that has the others")
    parser.add_argument("--triton", type=Path, default=Path("build/triton"), help="folder with nvidia-pytriton")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=320, help="of a round, for each server and kind of body")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    wish = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        parser.error("two cores are needed: one for the server, one for the client")
    os.sched_setaffinity(0, cores[1:])
    folder = Path("build/serving")
    began = time.monotonic()
    text = "\n\n".join(
        (facts(), small(bundle("small", folder), wish, cores[0]), large(bundle("large", folder), wish, cores[0]))
    )
    sys.stdout.write(f"{text}\n")
    sys.stderr.write(f"{time.monotonic() - began:.0f} s\n")
    if wish.write:
        rewrite(wish.write, text)
    return 0


def facts() -> str:
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    load = os.getloadavg()[0]
    return (
        f"{model.partition(': ')[2]}, Python {platform.python_version()}, ONNX Runtime {onnxruntime.__version__}, "
        f"{time.strftime('%Y-%m-%d')}; load average at the start {load:.1f}. Each server had one core, one thread of "
        f"inference and batches of up to {MAX_BATCH} that wait 2 ms; {CONNECTIONS} connections from the other core. "
        f"Who is not measured stands still. The limit runs batches of {MAX_BATCH}; gaussport forms those that it found "
        "to be cheapest as it started, and may undercut it."
    )


def small(path: Path, wish: argparse.Namespace, core: int) -> str:
    """Every server, both kinds of body."""
    bodies = bodies_for(path)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contestants, missing = [], []
        for server in (gaussport(), *rivals(wish.rivals)):
            if server.installed():
                contestants.append(entered(stack, server, path, bodies, core, folder))
            else:
                missing.append(server.name)
        if wish.triton.exists():
            pid, port = stack.enter_context(triton_rival.running(wish.triton, path, bodies, core, folder))
            contestants.append(Contestant("Triton", pid, port, triton_rival.posts(bodies)))
        else:
            missing.append("Triton")
        kinds = ["tensor", "JPEG"]
        load = {"connections": CONNECTIONS, "requests": wish.requests}
        limits = compared(contestants, kinds, lambda: limit_ms(path, MAX_BATCH, core), wish.rounds, **load)
        ours = contestants[0]
        alone, half, most = steady(ours, "JPEG", 0.7, wish.requests)
    words = [f"A model of {statistics.median(limits['tensor']):.1f} ms:", table(contestants, limits)]
    words.append(
        f"gaussport from its start to its first two answers: {ours.start_s:.1f} s. JPEG at 70 % of its rate: half within "
        f"{half:.0f} ms, 99 % within {most:.0f} ms; one at a time {alone:.0f} ms."
    )
    if missing:
        words.append(f"Not installed: {', '.join(missing)}.")
    return "\n\n".join(words)


def large(path: Path, wish: argparse.Namespace, core: int) -> str:
    """Ours alone, against the session."""
    bodies = bodies_for(path)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = entered(stack, gaussport(), path, bodies, core, folder)
        load = {"connections": CONNECTIONS, "requests": wish.requests // 2}
        limits = compared([ours], ["tensor"], lambda: limit_ms(path, MAX_BATCH, core), wish.rounds, **load)
    return f"A model of {statistics.median(limits['tensor']):.1f} ms:\n\n{table([ours], limits)}"


def bodies_for(path: Path) -> Bodies:
    manifest, jpegs = open_bundle(path).manifest, photographs()
    return Bodies(manifest.name, jpegs, tensors(jpegs[:TENSORS], manifest.preprocessing))


def entered(stack: contextlib.ExitStack, server: Server, path: Path, bodies: Bodies, core: int, folder: Path) -> Contestant:
    """The server, running until the stack ends."""
    posts = server.posts(bodies)
    log = folder / server.name.replace(" ", "-")
    pid, port, start_s = stack.enter_context(running(server, path, posts, core, MAX_BATCH, log))
    sys.stderr.write(f"{server.name} answers\n")
    return Contestant(server.name, pid, port, posts, start_s)


if __name__ == "__main__":
    sys.exit(main())
