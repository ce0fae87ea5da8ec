"""TensorRT's progress on stderr, phase inside phase, and Ctrl-C as a wish that it hears at its next step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Interruption:
    """Set by Ctrl-C. TensorRT calls us from C++, where an exception would end the process."""

    def __init__(self) -> None:
        self.wished = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the block Ctrl-C is noted instead of raised."""
        before = signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _note(self, *_: object) -> None:
        self.wished = True


@contextmanager
def progress_monitor(trt: Any, interruption: Interruption) -> Iterator[Any]:
    """An `IProgressMonitor` that draws a bar for each phase, on a terminal; silent elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.tasks: dict[str, TaskID] = {}
            self.depth: dict[str, int] = {}

        def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
            self.depth[phase] = self.depth.get(parent, -1) + 1 if parent else 0
            self.tasks[phase] = progress.add_task("  " * self.depth[phase] + phase, total=steps)

        def step_complete(self, phase: str, step: int) -> bool:
            if phase in self.tasks:
                progress.update(self.tasks[phase], completed=step + 1)
            return not interruption.wished

        def phase_finish(self, phase: str) -> None:
            if phase in self.tasks:
                progress.remove_task(self.tasks.pop(phase))

    with progress:
        yield Monitor()
