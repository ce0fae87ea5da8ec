"""Batches that run side by side: as many as are allowed, none mixed with another, all ended before the batcher is."""

import asyncio
import threading

import numpy as np
import pytest

from gaussport.serving.batcher import Batcher
from tests.serving.batching import Model, Rows, ask, code_of, scenario, until


class Gate:
    """A model that says how many batches are in it and keeps each of them until as many have come, or for a moment."""

    def __init__(self, wanted: int) -> None:
        self.inside, self.most, self._wanted = 0, 0, wanted
        self._changed = threading.Condition()

    def __call__(self, rows: Rows) -> Rows:
        with self._changed:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._wanted, 0.2)
        kept = rows.copy()
        answer = np.stack([rows[:, 0], 2 * rows[:, 0]], axis=1)
        with self._changed:
            self.inside -= 1
        assert np.array_equal(rows, kept), "another batch was laid out in this one's memory"
        return answer


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_so_many_run_and_no_more(at_once: int) -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        gate = batcher.run = Gate(at_once)
        await asyncio.gather(*(ask(batcher, value, value + 0.5) for value in range(12)))
        assert gate.most == at_once

    scenario(body, at_once=at_once, max_batch=4, queue_size=64)


def test_rows_of_batches_that_overlap_do_not_mix() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        batcher.run = Gate(3)
        for _ in range(5):
            answers = await asyncio.gather(*(ask(batcher, value, value + 0.5) for value in range(30)))
            assert [answer.logits[:, 1].tolist() for answer in answers] == [[2 * n, 2 * n + 1] for n in range(30)]

    scenario(body, at_once=3, max_batch=4, queue_size=64)


def test_a_request_of_many_rows_is_joined_from_batches_that_end_in_any_order() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = threading.Event()

        def run(rows: Rows) -> Rows:
            if rows[0, 0] == 0:
                assert first.wait(10)
            elif rows[0, 0] == 4:
                first.set()
            return np.stack([rows[:, 0], 2 * rows[:, 0]], axis=1)

        batcher.run = run
        answer = await ask(batcher, *range(8))
        assert answer.logits[:, 0].tolist() == list(range(8))

    scenario(body, at_once=2, max_batch=4)


def test_one_that_fails_leaves_the_other_alone() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        def run(rows: Rows) -> Rows:
            if (rows[:, 0] == 3).any():
                raise ValueError("unwell")
            return rows

        batcher.run = run
        answers = [asyncio.create_task(ask(batcher, value)) for value in range(8)]
        assert await code_of(answers[3]) == "model_failed"
        others = await asyncio.gather(*(each for n, each in enumerate(answers) if n != 3))
        assert [answer.logits[0, 0] for answer in others] == [0, 1, 2, 4, 5, 6, 7]

    scenario(body, at_once=2, max_batch=4)


def test_closing_lets_all_of_them_end() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        model.free.clear()
        running = [asyncio.create_task(ask(batcher, value)) for value in (1, 2)]
        await until(lambda: batcher.held == 0 and all(task.get_coro() is not None for task in running))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(ask(batcher, 3))
        await until(lambda: batcher.held == 1)
        closing = asyncio.create_task(batcher.close())
        assert await code_of(waiting) == "draining"
        assert not closing.done()
        model.free.set()
        assert [answer.logits[0, 0] for answer in await asyncio.gather(*running)] == [1, 2]
        await closing

    scenario(body, at_once=2, max_batch=1)
