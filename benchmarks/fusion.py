"""A d384 of somebody's einsum module: how many of its attention layers are found, and what ONNX Runtime gains.

    python benchmarks/fusion.py [--attention steered|fixed] [--depth 12] [--size 224] [--threads 2] [--rounds 9]

Exports the foreign classifier of the tests (nothing of gaussport in it) by torch's exporter, fuses it, and times the given
model and the fused one in turns, in one process. Times are medians, and mean something only as a ratio within one run.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gaussport.export.fusion.rewriting import fuse
from gaussport.onnx_runtime import onnxruntime
from tests.fusion.foreign import ssog
from tests.fusion.foreign.classifier import VisionTransformer
from tests.fusion.foreign.exporting import exported

ATTENTION = {"steered": ssog.EinsumSteered, "fixed": ssog.EinsumFixed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", choices=list(ATTENTION), default="steered")
    parser.add_argument("--exporter", choices=["dynamo", "torchscript"], default="dynamo")
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.manual_seed(0)
    grid = (options.size // 16, options.size // 16)

    def attention(dim: int, heads: int, grid: tuple[int, int]) -> torch.nn.Module:
        module: torch.nn.Module = ATTENTION[options.attention](dim, heads, grid, atoms=4)
        return module

    module = VisionTransformer(attention, grid, dim=384, heads=6, depth=options.depth, patch=16, classes=1000)
    given = exported(module, module.image, options.exporter)
    start = time.perf_counter()
    fusion = fuse(given)
    seconds = time.perf_counter() - start
    tell(f"{len(fusion.fused)} of {options.depth} attention layers fused in {seconds:.1f} s, {len(fusion.refused)} refused")
    tell(f"nodes {ir.from_proto(given).graph.num_nodes()} → {ir.from_proto(fusion.model).graph.num_nodes()}")
    sessions = {"given": session(given, options.threads), "fused": session(fusion.model, options.threads)}
    pixels = np.random.default_rng(0).standard_normal((1, *module.image), dtype=np.float32)
    answers = {name: run(one, pixels) for name, one in sessions.items()}
    scale = np.abs(answers["given"]).max()
    tell(f"largest difference {np.abs(answers['given'] - answers['fused']).max() / scale:.1e} of the largest logit")
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(options.rounds):
        for name, one in sessions.items():
            start = time.perf_counter()
            run(one, pixels)
            times[name].append(1e3 * (time.perf_counter() - start))
    given_ms, fused_ms = (statistics.median(times[name]) for name in ("given", "fused"))
    ratio = f"{given_ms / fused_ms:.2f}×"
    tell(f"batch 1, {options.threads} threads: given {given_ms:.0f} ms, fused {fused_ms:.0f} ms, {ratio}")


def tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def session(model: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(one: onnxruntime.InferenceSession, pixels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(one.run(None, {one.get_inputs()[0].name: pixels})[0])


if __name__ == "__main__":
    main()
