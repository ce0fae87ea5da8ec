"""The table, the plots and the JSON of `python -m benchmarks.models`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks import page
from benchmarks.models import subjects
from gaussport.serving.bench.machine import Machine

if TYPE_CHECKING:
    from benchmarks.models.__main__ import Cell

_WORDS = {"plain": "plain export", "eager": "PyTorch", "compile": "torch.compile", "openvino": "OpenVINO"}
_COLOURS = {"dot": "#888888", "ssog": "#1f6fb4", "gma": "#d1662b"}


def table(cells: Sequence["Cell"], threads: int, sgemm: float, machine: Machine) -> str:
    """A row for each family of each cell. Times are those of one batch."""
    rivals = [name for name in cells[0].timings[next(iter(cells[0].timings))] if name != "ours"]
    heads = ["model", "px", "batch", "ours ms", "spread", "core ms", "floor ms", "GFLOP/s", "÷ twin", "core ÷ twin"]
    heads += [f"÷ {_WORDS[name]}" for name in rivals]
    rows = []
    for cell in cells:
        for family, timings in cell.timings.items():
            ours = timings["ours"]
            flop = subjects.gigaflop(family, cell.size, cell.side) * cell.batch
            twin = cell.timings.get(subjects.TWIN)
            ratios = ["", ""]
            if twin and family != subjects.TWIN:
                ratios = [f"{ours.wall_ms / twin['ours'].wall_ms:.2f}", f"{ours.cpu_ms / twin['ours'].cpu_ms:.2f}"]
            row = [f"{family}-{cell.size}", str(cell.side), str(cell.batch), f"{ours.wall_ms:,.1f}"]
            row += [f"{ours.spread:.0%}", f"{ours.cpu_ms:,.1f}", f"{flop / sgemm * 1e3:,.1f}"]
            row += [f"{flop / ours.wall_ms * 1e3:.0f}", *ratios]
            rows.append(row + [f"{ours.wall_ms / timings[name].wall_ms:.2f}" for name in rivals])
    facts = f"{machine}. {threads} threads; a product of two 1536² matrices runs at {sgemm:.0f} GFLOP/s."
    return f"{facts}\n\n{page.table(heads, rows)}"


def plain(cells: Sequence["Cell"]) -> list[dict[str, Any]]:
    return [
        {
            "size": cell.size,
            "side": cell.side,
            "batch": cell.batch,
            "timings": {f: {b: t.model_dump() for b, t in timings.items()} for f, timings in cell.timings.items()},
        }
        for cell in cells
    ]


def write(name: str, text: str, cells: Sequence["Cell"]) -> None:
    """The block of docs/performance.md, and a plot against tokens where several sides were measured at one batch."""
    slopes = ""
    first = [cell for cell in cells if (cell.size, cell.batch) == (cells[0].size, cells[0].batch)]
    if len(first) > 2:
        page.save_plot(_plot(first), name)
        slopes = f"\n\n![Milliseconds against tokens](img/{name}.svg)\n\n{_slopes(first)}"
    page.rewrite(name, text + slopes)


def _tokens(cell: "Cell") -> int:
    return (cell.side // 16) ** 2


def _slopes(cells: Sequence["Cell"]) -> str:
    """Log-log slopes of time over tokens between the smallest and the largest picture."""
    words = []
    for family in cells[0].timings:
        low, high = cells[0].timings[family]["ours"].wall_ms, cells[-1].timings[family]["ours"].wall_ms
        slope = np.log(high / low) / np.log(_tokens(cells[-1]) / _tokens(cells[0]))
        words.append(f"{family} {slope:.2f}")
    return f"Log-log slopes of time over tokens, {cells[0].side} to {cells[-1].side} px: {', '.join(words)}."


def _plot(cells: Sequence["Cell"]) -> plt.Figure:
    plt.rcParams["svg.hashsalt"] = "gaussport"
    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    tokens = [_tokens(cell) for cell in cells]
    for family in cells[0].timings:
        for backend, line in (("ours", "-"), ("plain", ":")):
            if backend in cells[0].timings[family]:
                times = [cell.timings[family][backend].wall_ms for cell in cells]
                label = family if backend == "ours" else f"{family}, plain export"
                axes.loglog(tokens, times, line, color=_COLOURS[family], marker="o", markersize=4, label=label)
    axes.set_xticks(tokens, [f"{n:,}\n{cell.side} px" for n, cell in zip(tokens, cells, strict=True)])
    axes.minorticks_off()
    axes.set_xlabel("tokens")
    axes.set_ylabel(f"ms, {cells[0].size}, batch {cells[0].batch}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure
