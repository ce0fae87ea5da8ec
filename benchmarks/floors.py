"""The least time that each operator can take on a GPU: work over peak arithmetic, and bytes over bandwidth.

    python benchmarks/floors.py

Peaks are the data sheets' dense float16 tensor rates (float32 accumulation) and bandwidths. A perfect kernel reads each
operand once, writes the output once, and overlaps both with arithmetic, so that it takes the larger of the two floors.
"""

from dataclasses import dataclass

from rich.console import Console

P, D, R, K, DR = 6, 64, 4, 32, 16  # heads, head width, atoms, components, routing width
BYTES = 2  # float16
TOKENS = (196, 1024, 4096, 16384)
BATCH = 32


@dataclass(frozen=True)
class Gpu:
    name: str
    tera_flops: float
    tera_bytes: float  # per second


GPUS = (
    Gpu("H100 SXM", 989, 3.35),
    Gpu("H200", 989, 4.8),
    Gpu("A100 80GB", 312, 2.04),
    Gpu("L4", 121, 0.30),
    Gpu("RTX 4090", 165, 1.01),
    Gpu("RTX 5090", 210, 1.79),
)


@dataclass(frozen=True)
class Cost:
    """Operations and bytes of one run at batch 1."""

    flops: float
    bytes: float

    def floors_us(self, gpu: Gpu) -> tuple[float, float]:
        """Microseconds of a batch by arithmetic and by bandwidth."""
        return BATCH * self.flops / gpu.tera_flops / 1e6, BATCH * self.bytes / gpu.tera_bytes / 1e6


def separable_gaussian_filter(tokens: int) -> Cost:
    """Steered, on a square grid: two passes of P·R·D products over one side; value, output and five numbers per atom."""
    side = tokens**0.5
    return Cost(4 * P * R * D * tokens * side, BYTES * tokens * (2 * P * D + 5 * P * R))


def latent_memory_routing(tokens: int) -> Cost:
    """Two sets of K scores of 2·dr products, a write and a read of K·dv; query, key, value and output."""
    return Cost(P * tokens * (4 * K * 2 * DR + 4 * K * D), BYTES * tokens * P * (2 * DR + 2 * D))


def dot_product(tokens: int) -> Cost:
    """Scaled dot-product attention with the same heads."""
    return Cost(4 * P * D * tokens**2, BYTES * tokens * 4 * P * D)


def table() -> str:
    columns = " | ".join(gpu.name for gpu in GPUS)
    lines = [f"| operator | tokens | MFLOP | MB | {columns} |", "|---|---:|---:|---:|" + "---:|" * len(GPUS)]
    for name, cost_of in (("SSOG", separable_gaussian_filter), ("GMA", latent_memory_routing), ("dot", dot_product)):
        for tokens in TOKENS:
            cost = cost_of(tokens)
            cells = []
            for gpu in GPUS:
                arithmetic, bandwidth = cost.floors_us(gpu)
                cells.append(f"{max(arithmetic, bandwidth):,.0f} {'A' if arithmetic > bandwidth else 'B'}")
            lines.append(f"| {name} | {tokens:,} | {cost.flops / 1e6:,.0f} | {cost.bytes / 1e6:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Console(soft_wrap=True, highlight=False).print(table())
