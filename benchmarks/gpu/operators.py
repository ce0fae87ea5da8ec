"""Checks the GPU kernels against the float64 definitions, then times them beside attention and a copy.

    python benchmarks/gpu/operators.py                     on any CUDA GPU with torch and triton: check, time, print a table
    python benchmarks/gpu/operators.py --json FILE         ... and keep the numbers
    python benchmarks/gpu/operators.py --dry               without a GPU: the checks alone, on small shapes, interpreted

Times are medians over replays of a CUDA graph that calls the operator once for each of several input sets, together larger
than the cache. A floor is the larger of bytes / copy bandwidth and flop / matmul rate in the same dtype, both measured here.
The twin is `scaled_dot_product_attention` with the same batch, heads, tokens and value width.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

REPLAYS = 30
CACHE_BYTES = 256 << 20  # larger than any L2; input sets together fill it
MOST_SETS = 32
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # largest error over largest value


@dataclass(frozen=True)
class Case:
    """One operator at one size. `grid` is (H, W) of a filter, (N, 1) of a routing."""

    operator: str  # "filter", "fixed filter", "routing" or "causal routing"
    batch: int
    grid: tuple[int, int]
    heads: int = 6
    width: int = 64  # D or dv
    atoms: int = 4
    components: int = 32
    routing_width: int = 16

    @property
    def tokens(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def flop(self) -> float:
        """What OPS.md counts: two filter passes, or scores, write and read."""
        per_head = self.batch * self.heads * self.tokens
        if "routing" in self.operator:
            return per_head * 4.0 * self.components * (self.routing_width + self.width)
        return per_head * 4.0 * self.atoms * self.width * sum(self.grid) / 2

    def bytes(self, element: int) -> float:
        """Every operand read once, the output written once."""
        per_head = self.batch * self.heads * self.tokens * element
        if "routing" in self.operator:
            return per_head * 2.0 * (self.routing_width + self.width)
        return per_head * (2.0 * self.width + (0 if self.operator == "fixed filter" else 5 * self.atoms))


CHECKED = [
    Case("filter", 2, (14, 14)),
    Case("fixed filter", 2, (14, 14)),
    Case("filter", 2, (9, 13), heads=2, width=20, atoms=3),
    Case("filter", 1, (32, 32), heads=2),
    Case("filter", 1, (70, 33), heads=1, width=40),
    Case("fixed filter", 1, (64, 64), heads=2),
    Case("routing", 2, (196, 1)),
    Case("causal routing", 2, (196, 1)),
    Case("routing", 1, (700, 1), heads=2),
    Case("causal routing", 1, (700, 1), heads=2),
    Case("routing", 1, (130, 1), heads=2, width=33, components=64, routing_width=40),
    Case("causal routing", 1, (130, 1), heads=2, width=33, components=64, routing_width=40),
]
CHECKED_DRY = [
    Case("filter", 1, (5, 6), heads=2, width=20, atoms=3),
    Case("fixed filter", 2, (5, 6), heads=2, width=20),
    Case("filter", 1, (33, 2), heads=1, width=8, atoms=1),
    Case("routing", 2, (70, 1), heads=2, width=20, components=8, routing_width=6),
    Case("causal routing", 1, (70, 1), heads=2, width=20, components=8, routing_width=6),
    Case("routing", 1, (600, 1), heads=1, width=8, components=3, routing_width=4),
]
TIMED = [
    *(Case(operator, batch, (14, 14)) for operator in ("filter", "fixed filter") for batch in (1, 8, 64, 256)),
    *(Case("filter", batch, (32, 32)) for batch in (1, 8, 64)),
    *(Case("filter", batch, (64, 64)) for batch in (1, 8, 16)),
    *(Case(operator, batch, (196, 1)) for operator in ("routing", "causal routing") for batch in (1, 8, 64, 256)),
    *(Case(operator, batch, (4096, 1)) for operator in ("routing", "causal routing") for batch in (1, 8, 16)),
    Case("routing", 1, (16384, 1)),
]


def operands(case: Case, dtype: "Any", device: str, seed: int) -> "list[Tensor]":
    """Random operands: widths of one to a few cells, offsets of a few; mixtures spread like their tokens."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> "Tensor":
        return torch.randn(*shape, generator=generator, device=device)

    B, (H, W), P, D = case.batch, case.grid, case.heads, case.width
    if "routing" in case.operator:
        K, dr, N = case.components, case.routing_width, case.tokens
        variance = torch.nn.functional.softplus(normal(P, K, dr)) + 0.5
        drawn = [normal(B, N, P, dr), normal(B, N, P, dr), normal(B, N, P, D), normal(P, K, dr), variance]
        drawn.append(torch.log_softmax(normal(P, K), dim=-1))
    else:
        field = (1, 1, 1) if case.operator == "fixed filter" else (B, H, W)
        shape = (*field, P, case.atoms)
        drawn = [normal(B, H, W, P, D), 2 * normal(*shape, 2), torch.exp(0.7 * normal(*shape, 2))]
        drawn.append(torch.softmax(normal(*shape), dim=-1))
    return [tensor.to(dtype) for tensor in drawn]


def kernel(case: Case) -> "Callable[..., Tensor]":
    """The operator's `run`."""
    from gaussport.plugins.latent_memory_routing import triton_launch as routing
    from gaussport.plugins.separable_gaussian_filter import triton_launch as filtering

    if case.operator == "causal routing":
        return partial(routing.run, causal=True)
    return routing.run if case.operator == "routing" else filtering.run


def check(cases: Sequence[Case], dtypes: Sequence[str], device: str) -> Iterator[dict[str, Any]]:
    """Error against the definition, and whether a second run gives the same bits."""
    import numpy as np
    import torch

    from gaussport.plugins.latent_memory_routing.definition import latent_memory_routing
    from gaussport.plugins.separable_gaussian_filter.definition import separable_gaussian_filter

    for case in cases:
        for dtype in dtypes:
            tensors = operands(case, getattr(torch, dtype), device, seed=0)
            output, again = kernel(case)(*tensors), kernel(case)(*tensors)
            arrays = [tensor.double().cpu().numpy() for tensor in tensors]
            if "routing" in case.operator:
                wanted = latent_memory_routing(*arrays, causal=case.operator.startswith("causal"))
            else:
                wanted = separable_gaussian_filter(*arrays)
            error = float(np.abs(output.double().cpu().numpy() - wanted).max() / np.abs(wanted).max())
            same_bits = bool(torch.equal(output, again))
            passed = error <= TOLERANCE[dtype] and same_bits
            yield {**asdict(case), "dtype": dtype, "error": error, "same_bits": same_bits, "passed": passed}


def median_seconds(call: "Callable[..., Tensor]", sets: "list[list[Tensor]]") -> float:
    """Per call: replays of one CUDA graph over all input sets, so that launching from Python costs nothing."""
    import torch

    for _ in range(3):
        for tensors in sets:
            call(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for tensors in sets:
            call(*tensors)
    times: list[float] = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)) / 1e3 / len(sets))
    return statistics.median(times)


def machine_rates(dtypes: Sequence[str]) -> dict[str, float]:
    """Bytes per second of a copy (read and written), and flop per second of a matmul in each dtype."""
    import torch

    def copy(source: "Tensor", target: "Tensor") -> "Tensor":
        return target.copy_(source)

    source = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    rates = {"copy": 2 * source.numel() / median_seconds(copy, [[source, torch.empty_like(source)]])}
    size = 4096
    for dtype in dtypes:
        factor = torch.randn(size, size, device="cuda").to(getattr(torch, dtype))
        rates[dtype] = 2 * size**3 / median_seconds(torch.matmul, [[factor, factor]])
    return rates


def time_case(case: Case, dtype: str, rates: dict[str, float]) -> dict[str, Any]:
    """Kernel and twin on the same number of input sets."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    kind = getattr(torch, dtype)
    size = case.bytes(torch.empty(0, dtype=kind).element_size())
    count = int(min(MOST_SETS, max(2, -(-CACHE_BYTES // size))))
    seconds = median_seconds(kernel(case), [operands(case, kind, "cuda", seed) for seed in range(count)])

    def qkv() -> "list[Tensor]":
        shape = (case.batch, case.heads, case.tokens, case.width)
        return [torch.randn(*shape, device="cuda").to(kind) for _ in range(3)]

    causal = case.operator.startswith("causal")
    twin = median_seconds(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal), [qkv() for _ in range(count)]
    )
    floor = max(size / rates["copy"], case.flop / rates[dtype])
    return {
        **asdict(case),
        "dtype": dtype,
        "input_sets": count,
        "seconds": seconds,
        "floor_seconds": floor,
        "floor_is": "bandwidth" if size / rates["copy"] >= case.flop / rates[dtype] else "arithmetic",
        "fraction_of_floor": floor / seconds,
        "sdpa_seconds": twin,
        "times_faster_than_sdpa": twin / seconds,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, then time. Exit code 1 when a check fails or there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="check small shapes in Triton's interpreter; no GPU needed")
    parser.add_argument("--check-only", action="store_true", help="check, do not time")
    parser.add_argument("--dtypes", nargs="+", default=list(TOLERANCE), choices=list(TOLERANCE))
    parser.add_argument("--json", type=Path, help="write every number to this file")
    options = parser.parse_args(arguments)
    if options.dry:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    import torch
    import triton

    torch.backends.cuda.matmul.allow_tf32 = False
    if not (options.dry or torch.cuda.is_available()):
        print("operators.py: no CUDA GPU here; --dry checks the kernels in Triton's interpreter", file=sys.stderr)  # noqa: T201
        return 1
    device = "cpu" if options.dry else "cuda"
    report: dict[str, Any] = {
        "device": "interpreter" if options.dry else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "checks": [],
        "rates": {},
        "timings": [],
    }
    _show(["check", "dtype", "relative error", "same bits twice", ""], header=True)
    for row in check(CHECKED_DRY if options.dry else CHECKED, options.dtypes, device):
        report["checks"].append(row)
        _show([_name(row), row["dtype"], f"{row['error']:.1e}", row["same_bits"], "" if row["passed"] else "**FAILED**"])
    passed = all(row["passed"] for row in report["checks"])
    if passed and not (options.dry or options.check_only):
        report["rates"] = machine_rates(options.dtypes)
        print(f"\n{report['device']}:", *(f"{name} {rate:.3g}/s" for name, rate in report["rates"].items()), "\n")  # noqa: T201
        _show(["timed", "dtype", "µs", "floor µs", "of floor", "floor is", "SDPA µs", "× SDPA"], header=True)
        for case in TIMED:
            for dtype in options.dtypes:
                row = time_case(case, dtype, report["rates"])
                report["timings"].append(row)
                micro = [f"{row[name] * 1e6:.1f}" for name in ("seconds", "floor_seconds", "sdpa_seconds")]
                _show([_name(row), dtype, micro[0], micro[1], f"{row['fraction_of_floor']:.2f}", row["floor_is"], micro[2],
                       f"{row['times_faster_than_sdpa']:.2f}"])  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if passed else 1


def _name(row: dict[str, Any]) -> str:
    return f"{row['operator']} B{row['batch']} {row['grid'][0]}×{row['grid'][1]} P{row['heads']} D{row['width']}"


def _show(cells: Sequence[object], header: bool = False) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)  # noqa: T201
    if header:
        print("|" + " --- |" * len(cells), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # a checkout is enough; nothing need be installed
    raise SystemExit(main())
