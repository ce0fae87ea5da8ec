"""Where a model's time goes in ONNX Runtime on one thread: linear layers, the operators' bodies, and everything else.

    python -m benchmarks.models.profile [--size d384] [--sides 224 512 1024] [--runs 10] [--no-page]

Milliseconds are from each node's least time over the runs, which other jobs on the machine lengthen least. A profiled run as
a whole takes longer than their sum, by some microseconds a node. Rewrites the block `profile` in docs/performance.md.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console

from benchmarks import page
from benchmarks.models import subjects
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.bench.machine import this_machine
from gaussport.serving.providers import session_options

GROUPS = ("linear", "body", "operands", "GELU", "norms", "bias, residual", "rest")
"""`operands` is the rest of an attention: for SSOG the field's numbers, for the twin heads, scores and their softmax."""
_INLINED = re.compile(r"[A-Za-z]+_\d{2,}|/.*")
"""How ONNX Runtime names the nodes of a body that it has put into the graph, and those that it makes of them."""


def group(name: str, kind: str) -> str:
    if _INLINED.fullmatch(name):
        return "body"
    if kind in ("MatMul", "Gemm") and re.search(r"(attn\.\w+|mlp\.\d|patch_embed|head)/", name):
        return "linear"
    if "Gelu" in kind:
        return "GELU"
    if "LayerNormalization" in kind:
        return "norms"
    if ".attn" in name:
        return "operands"
    return "bias, residual" if kind == "Add" else "rest"


def milliseconds(model: bytes, side: int, runs: int) -> dict[str, float]:
    """Of one run at batch 1, by group."""
    with TemporaryDirectory() as folder:
        options = session_options(1)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        pixels = np.random.default_rng(0).standard_normal((1, 3, side, side), dtype=np.float32)
        for _ in range(runs):
            session.run(None, {session.get_inputs()[0].name: pixels})
        events = json.loads(Path(session.end_profiling()).read_text())
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and event["args"]["op_name"] != "Scan":
            taken[event["name"].removesuffix("_kernel_time"), event["args"]["op_name"]].append(event["dur"] / 1e3)
    found = dict.fromkeys(GROUPS, 0.0)
    for (name, kind), times in taken.items():
        found[group(name, kind)] += min(times) * len(times) / runs  # a node in a Scan runs many times
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="d384", choices=["d256", "d384"])
    parser.add_argument("--sides", type=int, nargs="+", default=[224, 512, 1024], help="pixels")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--no-page", action="store_true", help="print only")
    wish = parser.parse_args()
    rows = []
    for side in wish.sides:
        for family in subjects.FAMILIES:
            found = milliseconds(subjects.ours(family, wish.size, side), side, wish.runs)
            cells = [f"{found[name]:,.1f}" for name in GROUPS]
            rows.append([f"{family}-{wish.size}", str(side), f"{sum(found.values()):,.1f}", *cells])
    text = f"{this_machine()}. One thread.\n\n{page.table(['model', 'px', 'sum', *GROUPS], rows)}"
    Console(highlight=False, soft_wrap=True).print(text)
    if not wish.no_page:
        page.rewrite("profile", text)


if __name__ == "__main__":
    main()
