"""A batcher with a model of our own, for the tests of the batcher alone."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gaussport.serving.batcher import Batcher, BatchLimits
from gaussport.serving.errors import RequestError
from gaussport.serving.waiting import Answer

Rows = NDArray[np.float32]
LATER = 60.0


class Model:
    """Answers each row with itself and its double; can be held, and made to fail."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.free = threading.Event()
        self.free.set()
        self.faults: list[Callable[[Rows], bool]] = []

    def __call__(self, rows: Rows) -> Rows:
        self.free.wait(10)
        self.sizes.append(len(rows))
        for fault in self.faults:
            if fault(rows):
                raise ValueError("the model is unwell")
        return np.stack([rows[:, 0], 2 * rows[:, 0]], axis=1)


def rows(*values: float) -> Rows:
    return np.array(values, dtype=np.float32)[:, None]


def scenario(body: Callable[[Batcher, Model], Coroutine[Any, Any, None]], **limits: Any) -> None:
    """Run a test's body beside a started batcher, and close that whatever happens."""

    async def run() -> None:
        model = Model()
        batcher = Batcher(model, BatchLimits(**({"max_batch": 4, "max_delay_ms": 0, "queue_size": 16} | limits)))
        batcher.start()
        try:
            await asyncio.wait_for(body(batcher, model), 20)
        finally:
            model.free.set()
            await batcher.close()
        assert batcher.held == 0

    asyncio.run(run())


async def ask(batcher: Batcher, *values: float, within_s: float = LATER, urgent: bool = False) -> Answer:
    with batcher.place(len(values)) as place:
        return await place.answer(rows(*values), batcher.clock() + within_s, urgent)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def code_of(answer: Awaitable[Answer]) -> str:
    with pytest.raises(RequestError) as caught:
        await answer
    return caught.value.code


async def occupied(batcher: Batcher, model: Model) -> asyncio.Task[Answer]:
    """A request that is in the model, and stays there until `model.free` is set."""
    model.free.clear()
    task = asyncio.create_task(ask(batcher, 0))
    await until(lambda: batcher.held == 0 and task.get_coro() is not None and not batcher._normal)
    await asyncio.sleep(0.01)
    return task
