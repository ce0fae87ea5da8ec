"""How far a job is: a bar on a terminal, else a line on standard error every half minute, for logs."""

import sys
import time
from collections.abc import Iterator

from gaussport.serving.offline.formats import Count

_EVERY_S = 30.0


def with_progress(parts: Iterator[Count], done: int, total: int) -> Iterator[Count]:
    """The parts, while whoever waits is told how many pictures are done and how long the rest will take."""
    if sys.stderr.isatty():
        yield from _with_bar(parts, done, total)
        return
    began = told = time.monotonic()
    first = done
    for part in parts:
        yield part
        done += part.pictures
        if (now := time.monotonic()) - told >= _EVERY_S:
            told, rate = now, (done - first) / (now - began)
            sys.stderr.write(f"{done:,} of {total:,} pictures, {rate:.0f}/s, {(total - done) / rate / 60:.0f} min left\n")
            sys.stderr.flush()


def _with_bar(parts: Iterator[Count], done: int, total: int) -> Iterator[Count]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("classifying", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("classifying", total=total, completed=done)
        for part in parts:
            yield part
            bar.advance(task, part.pictures)
