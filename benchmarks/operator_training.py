"""Peak memory and time of an operator's share of a training step: forward and backward, a gradient for every operand.

    python -m benchmarks.operator_training [--tokens 196 1024 4096 16384]

float32, batch 1, the operands of benchmarks/operators.py, on one thread; torch's own attention, plain and causal, beside it.
Memory is the peak of a fresh process, less what it held before: what autograd keeps and the gradients are in it. Time is the
processor's, the median of the runs. Rewrites its block of docs/operators.md.
"""

import argparse
import statistics
import time
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.operators import SHORT, D, K, P, R, Run, operands, peak_megabytes
from benchmarks.page import rewrite, table
from gaussport.plugins.latent_memory_routing.torch_op import latent_memory_routing
from gaussport.plugins.separable_gaussian_filter.torch_op import separable_gaussian_filter

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
COLUMNS = {
    "SSOG": separable_gaussian_filter,
    "SDPA": scaled_dot_product_attention,
    "GMA": latent_memory_routing,
    "GMA, causal": partial(latent_memory_routing, causal=True),
    "SDPA, causal": partial(scaled_dot_product_attention, is_causal=True),
}


def step(column: str, tokens: int) -> Run:
    """Forward and backward of one column, ready to be called; gradients of the call before are dropped."""
    given = [tensor.requires_grad_() for tensor in _operands(column, tokens)]
    operator = COLUMNS[column]

    def run() -> None:
        for tensor in given:
            tensor.grad = None
        output: Tensor = operator(*given)
        output.backward(torch.ones_like(output))

    return run


def _operands(column: str, tokens: int) -> list[Tensor]:
    kind = column.partition(",")[0]
    if kind == "SDPA":
        return [torch.randn(1, P, tokens, D) for _ in range(3)]
    return operands(next(name for name, short in SHORT.items() if short == kind), tokens)


def milliseconds(run: Run, patience_s: float = 10.0) -> float:
    taken: list[float] = []
    while len(taken) < 2 or (len(taken) < 6 and sum(taken) < 1e3 * patience_s):
        began = time.process_time()
        run()
        taken.append(1e3 * (time.process_time() - began))
    return statistics.median(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[196, 1024, 4096, 16384], help="square numbers")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for tokens in track(arguments.tokens, "measuring", console=Console(stderr=True)):
        steered = 4 * tokens * P * R * D / 1e6
        mixed = 4 * tokens * P * K / 1e6
        cells = [
            f"{peak_megabytes(partial(step, column), tokens):,.1f} · {milliseconds(step(column, tokens)):,.0f}"
            for column in COLUMNS
        ]
        rows.append([f"{tokens:,}", *cells, f"{steered:,.1f}", f"{mixed:,.1f}", f"{4 * tokens**2 * P / 1e6:,.1f}"])
    heads = ["tokens", *COLUMNS, "[B,H,W,P,D,R]", "[B,P,N,K]", "[B,P,N,N]"]
    told = table(heads, rows, left=0)
    rewrite("operator-training", told, PAGE)
    Console(soft_wrap=True).print(told, highlight=False)


if __name__ == "__main__":
    main()
