"""A limit on the time of what the running task awaits: `asyncio.timeout`, for a fraction of its price, which each request
pays several times."""

import asyncio
from types import TracebackType
from typing import Self


class TimeIsOverError(TimeoutError):
    """The time of a `Patience` is over."""


class Patience:
    """`with Patience(seconds):` around awaits. Raises TimeIsOverError, and no other TimeoutError, when they take longer."""

    __slots__ = ("_before", "_over", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = max(0.0, seconds)
        self._over = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before = task, task.cancelling()
        self._timer = task.get_loop().call_later(self._seconds, self._end)
        return self

    def _end(self) -> None:
        self._over = True
        self._task.cancel()  # which waits inside: this runs in a turn of the loop that is not the task's

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._timer.cancel()
        if self._over and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeIsOverError from error
