"""Whole classifiers in one runtime: SSOG and GMA beside their dot-product twin, our export beside what there is without it.

    python -m benchmarks.models [--sizes d384] [--sides 224 384 512 1024] [--batches 1] [--backends ours plain eager]
                                [--threads 2] [--seconds 20] [--no-page]

Every cell (size, side, batch) is measured in interleaved rounds, after all its answers were found equal. The table in
docs/performance.md and its plots are rewritten, and build/bench/models.json is what they were made of.
"""

import argparse
import json
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console

from benchmarks.models import backends, subjects, writing
from gaussport.serving.bench.machine import this_machine
from gaussport.serving.bench.rounds import Timing, interleaved

console = Console(highlight=False, soft_wrap=True)
EQUAL = 2e-3
"""Largest difference of logits over the largest logit between two ways to compute one model."""


@dataclass(frozen=True)
class Cell:
    """One size, side and batch: the timing of each family in each backend."""

    size: str
    side: int
    batch: int
    timings: dict[str, dict[str, Timing]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["d384"], choices=["d256", "d384"])
    parser.add_argument("--sides", type=int, nargs="+", default=[224, 384, 512, 1024], help="pixels")
    parser.add_argument("--batches", type=int, nargs="+", default=[1])
    parser.add_argument("--families", nargs="+", default=subjects.FAMILIES, choices=subjects.FAMILIES)
    parser.add_argument("--backends", nargs="+", default=["ours", "plain", "eager"], choices=backends.BACKENDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="for a cell, after three rounds (default: 20)")
    parser.add_argument("--rounds", type=int, default=15, help="at most (default: 15)")
    parser.add_argument("--name", default="models", help="of the block in docs/performance.md (default: models)")
    parser.add_argument("--no-page", action="store_true", help="print the table only")
    wish = parser.parse_args()
    machine = this_machine()
    sgemm = sgemm_rate(wish.threads)
    cells = []
    for size in wish.sizes:
        for side in wish.sides:
            for batch in wish.batches:
                console.print(f"[dim]{size}, {side} px, batch {batch}[/]")
                cells.append(measured(size, side, batch, wish))
    text = writing.table(cells, wish.threads, sgemm, machine)
    console.print(text)
    if not wish.no_page:
        document = {"machine": machine.model_dump(), "threads": wish.threads, "sgemm": sgemm, "cells": writing.plain(cells)}
        (subjects.KEPT.parent / f"{wish.name}.json").write_text(json.dumps(document, indent=1) + "\n")
        writing.write(wish.name, text, cells)


def measured(size: str, side: int, batch: int, wish: argparse.Namespace) -> Cell:
    runs = {
        (family, backend): backends.prepared(backend, family, size, side, batch, wish.threads)
        for family in wish.families
        for backend in wish.backends
    }
    for family in wish.families:
        answers = [runs[family, backend]() for backend in wish.backends]
        for backend, answer in zip(wish.backends, answers, strict=True):
            off = float(np.abs(answer - answers[0]).max() / np.abs(answers[0]).max())
            if not off <= EQUAL:
                raise SystemExit(f"{family}-{size} at {side} px: {backend} is off by {off:.1e} of the largest logit")
    named = {f"{family} {backend}": run for (family, backend), run in runs.items()}
    torch.set_num_threads(wish.threads)
    found = interleaved(named, wish.rounds, wish.seconds)
    timings = {f: {b: found[f"{f} {b}"] for b in wish.backends} for f in wish.families}
    return Cell(size, side, batch, timings)


def sgemm_rate(threads: int) -> float:
    """GFLOP/s of torch's product of two 1536² matrices in float32, the best of twelve."""
    torch.set_num_threads(threads)
    factor = torch.randn(1536, 1536)
    timing = [interleaved({"sgemm": lambda: factor @ factor}, 1)["sgemm"].wall_ms for _ in range(12)]
    return 2 * 1536**3 / min(timing) / 1e6


if __name__ == "__main__":
    main()
