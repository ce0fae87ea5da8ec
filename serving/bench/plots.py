"""PNG plots of a measurement: time by batch size, and what a server answers as the load rises."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gaussport.errors import UsageError
from gaussport.serving.bench.document import Document

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def require_matplotlib() -> None:
    """Raise a UsageError where plots cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError("plots need matplotlib: pip install 'gaussport[explain]', or leave --output out") from error


def write_plots(document: Document, folder: Path) -> list[Path]:
    """`batches.png` and `load.png`, of what there is."""
    written = []
    if document.sessions:
        written.append(_figure(folder / "batches.png", [_latency, _throughput], document))
    if document.loads:
        written.append(_figure(folder / "load.png", [_answers, _percentiles], document))
    return written


def _figure(path: Path, panels: list[Callable[["Axes", Document], None]], document: Document) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
        panel(axes, document)
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)
    figure.suptitle(str(document.machine), fontsize=8)
    figure.savefig(path, dpi=130)
    return path


def _latency(axes: "Axes", document: Document) -> None:
    for each in document.sessions:
        sizes, timings = list(each.batches), list(each.batches.values())
        (line,) = axes.plot(sizes, [t.wall_ms for t in timings], marker="o", markersize=4, label=each.model)
        axes.fill_between(
            sizes, [t.low_ms for t in timings], [t.high_ms for t in timings], color=line.get_color(), alpha=0.2
        )
    axes.set_xlabel("batch")
    axes.set_ylabel("ms, with quartiles")


def _throughput(axes: "Axes", document: Document) -> None:
    for each in document.sessions:
        rates = [size / timing.wall_ms * 1e3 for size, timing in each.batches.items()]
        axes.plot(list(each.batches), rates, marker="o", markersize=4, label=each.model)
    axes.set_xlabel("batch")
    axes.set_ylabel("images a second")


def _lines(document: Document) -> dict[str, tuple[list[float], list[int]]]:
    """For each model and kind of load, its sizes and which figures they are of."""
    found: dict[str, tuple[list[float], list[int]]] = {}
    for number, each in enumerate(document.loads):
        sizes, numbers = found.setdefault(f"{each.model}, {each.kind}", ([], []))
        sizes.append(float(each.connections or 0) if each.kind == "closed" else float(each.offered_per_s or 0))
        numbers.append(number)
    return found


def _answers(axes: "Axes", document: Document) -> None:
    for name, (sizes, numbers) in _lines(document).items():
        axes.plot(sizes, [document.loads[n].per_s for n in numbers], marker="o", markersize=4, label=name)
    axes.set_xlabel("connections, or requests a second offered")
    axes.set_ylabel("answers a second")


def _percentiles(axes: "Axes", document: Document) -> None:
    for name, (sizes, numbers) in _lines(document).items():
        for part, style in (("p50_ms", "-"), ("p99_ms", ":")):
            times = [getattr(document.loads[n], part) for n in numbers]
            axes.plot(sizes, times, style, marker="o", markersize=4, label=f"{name}, {part[:3]}")
    axes.set_xlabel("connections, or requests a second offered")
    axes.set_ylabel("ms")
