"""Named steps on stderr, for people who watch a terminal; silence everywhere else."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

T = TypeVar("T")


class Watch(Protocol):
    """Passes items on and shows how many of `total` have passed under that title."""

    def __call__(self, items: Iterable[T], total: int, title: str, /) -> Iterator[T]: ...


def unwatched(items: Iterable[T], _total: int, _title: str, /) -> Iterator[T]:
    """Shows nothing."""
    yield from items


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

    def watch(self, items: Iterable[T], total: int, title: str, /) -> Iterator[T]:
        """A bar of its own for the parts of one long step, while they last."""
        task = self._progress.add_task(title, total=total)
        try:
            for item in items:
                yield item
                self._progress.advance(task)
        finally:
            self._progress.remove_task(task)
