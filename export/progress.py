"""Named steps on stderr, for people who watch a terminal; silence everywhere else."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Steps:
    """A known number of steps, shown one at a time."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("starting", total=total)

    def __enter__(self) -> "Steps":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, description: str) -> Iterator[None]:
        """Show `description` while the block runs, and count it done when it ends well."""
        self._progress.update(self._task, description=description)
        yield
        self._progress.advance(self._task)
