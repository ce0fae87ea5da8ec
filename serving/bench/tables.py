"""A measurement for people: tables on the terminal, or Markdown for a page."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gaussport.serving.bench.document import Change, Document

_WIDE = 200  # characters; a file or a pipe has no width of its own

Heads = list[str]
Rows = list[list[str]]


def start_rows(document: Document) -> tuple[Heads, Rows]:
    heads = ["model", "ready s", "first answer s", "MB before", "MB loaded", "MB at most"]
    rows = []
    for each in document.sessions:
        start = each.start
        seconds = [f"{start.ready_s:.2f}", f"{start.first_answer_s:.2f}"]
        rows.append([each.model, *seconds, *(f"{mb:.0f}" for mb in (start.before_mb, start.loaded_mb, start.peak_mb))])
    return heads, rows


def batch_rows(document: Document) -> tuple[Heads, Rows]:
    heads = ["model", "batch", "ms", "quartiles", "images/s", "ms an image", "core ms an image"]
    rows = []
    for each in document.sessions:
        for size, timing in each.batches.items():
            quartiles = f"{timing.low_ms:.2f} – {timing.high_ms:.2f}"
            per_image = [f"{size / timing.wall_ms * 1e3:.0f}", f"{timing.wall_ms / size:.2f}", f"{timing.cpu_ms / size:.2f}"]
            rows.append([each.model, str(size), f"{timing.wall_ms:.2f}", quartiles, *per_image])
    return heads, rows


def load_rows(document: Document) -> tuple[Heads, Rows]:
    heads = ["model", "load", "answers/s", "refused", "p50 ms", "p90 ms", "p99 ms", "server core ms", "client core ms"]
    rows = []
    for each in document.loads:
        load = f"{each.connections} connections" if each.kind == "closed" else f"{each.offered_per_s:g}/s offered"
        times = [f"{ms:.1f}" for ms in (each.p50_ms, each.p90_ms, each.p99_ms)]
        server = "" if each.server_cpu_ms is None else f"{each.server_cpu_ms:.2f}"
        rows.append([each.model, load, f"{each.per_s:.0f}", str(each.refused), *times, server, f"{each.client_cpu_ms:.2f}"])
    return heads, rows


def change_rows(changes: Sequence[Change]) -> tuple[Heads, Rows]:
    rows = []
    for each in changes:
        verdict = "" if not each.differs else "slower" if each.ratio > 1 else "faster"
        rows.append([each.what, f"{each.before_ms:.2f}", f"{each.now_ms:.2f}", f"{each.ratio:.2f}", verdict])
    return ["what", "ms then", "ms now", "now ÷ then", ""], rows


_PARTS = (("start", start_rows), ("batches", batch_rows), ("load", load_rows))


def show(document: Document, changes: Sequence[Change]) -> None:
    """Everything measured, on standard output."""
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDE)
    console.print(Text(str(document.machine)))
    if (document.machine.load or 0) > document.machine.cores / 2:
        console.print(
            Text("The machine was busy with something else: ratios within this run hold, milliseconds do not.", "yellow")
        )
    for _, rows_of in _PARTS:
        _print(console, *rows_of(document))
    _print(console, *change_rows(changes))


def _print(console: Console, heads: Heads, rows: Rows) -> None:
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print()
    console.print(table)


def markdown(document: Document) -> str:
    """The same for a page."""
    parts = [f"{document.machine}. {', '.join(f'{name} {version}' for name, version in document.machine.software.items())}."]
    for _, rows_of in _PARTS:
        heads, rows = rows_of(document)
        if rows:
            ruler = "|".join("---" if number == 0 else "---:" for number in range(len(heads)))
            lines = [f"| {' | '.join(heads)} |", f"|{ruler}|", *(f"| {' | '.join(row)} |" for row in rows)]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
