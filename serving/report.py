"""What people and machines read of classified pictures: a table, or JSON; and a progress bar while they wait."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson

Item = TypeVar("Item")

_PATIENCE_S = 1.0


@dataclass(frozen=True)
class Row:
    """One picture and what was said of it."""

    picture: str
    predictions: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    code: str | None = None

    def to_json(self) -> dict[str, Any]:
        if self.error is not None:
            return {"image": self.picture, "error": {"code": self.code, "message": self.error}}
        return {"image": self.picture, "predictions": self.predictions, "warnings": self.warnings}


def show(rows: Sequence[Row], as_json: bool) -> int:
    """Write all rows to standard output. Returns the exit code: 1 when any picture could not be classified."""
    if as_json:
        sys.stdout.buffer.write(orjson.dumps([row.to_json() for row in rows], option=orjson.OPT_INDENT_2) + b"\n")
        sys.stdout.flush()
    else:
        _table(rows)
    return int(any(row.error is not None for row in rows))


def _table(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("image", overflow="fold")
    table.add_column("label")
    table.add_column("probability", justify="right")
    table.add_column("then", overflow="fold")
    for row in rows:
        if row.error is not None:
            table.add_row(Text(row.picture), Text("error", "red"), "", Text(row.error, "red"))
            continue
        best, *others = row.predictions
        notes = [f"{other['label']} {other['probability']:.3f}" for other in others] + row.warnings
        table.add_row(Text(row.picture), Text(best["label"], "bold"), f"{best['probability']:.3f}", Text(", ".join(notes)))
    Console().print(table)


def with_progress(rows: Iterable[Item], total: int, doing: str = "classifying") -> Iterator[Item]:
    """The rows, or whatever they are, and on a terminal a bar on standard error once a second has passed."""
    if not sys.stderr.isatty():
        yield from rows
        return
    from rich.console import Console
    from rich.progress import Progress

    began, bar, task = time.monotonic(), None, None
    done = 0
    try:
        for row in rows:
            yield row
            done += 1
            if bar is None and time.monotonic() - began > _PATIENCE_S and done < total:
                bar = Progress(console=Console(stderr=True), transient=True)
                bar.start()
                task = bar.add_task(doing, total=total, completed=done)
            elif bar is not None and task is not None:
                bar.update(task, completed=done)
    finally:
        if bar is not None:
            bar.stop()


def pictures_in(paths: Sequence[Path]) -> list[Path]:
    """The files named, and for each folder the files in it, by name; hidden ones left out."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(child for child in path.rglob("*") if child.is_file() and not child.name.startswith("."))
        else:
            found.append(path)
    return found
