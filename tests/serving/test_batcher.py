"""The batcher alone: what it batches, pads, splits and joins."""

import asyncio

import numpy as np

from gaussport.serving.batcher import Batcher
from tests.serving.batching import LATER, Model, Rows, ask, occupied, rows, scenario, until


def test_requests_that_wait_together_run_together() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = await occupied(batcher, model)
        others = [asyncio.create_task(ask(batcher, value)) for value in (1, 2, 3)]
        await until(lambda: batcher.held == 3)
        model.free.set()
        answers = await asyncio.gather(first, *others)
        assert model.sizes == [1, 3]
        assert [answer.logits.tolist() for answer in answers] == [[[0, 0]], [[1, 2]], [[2, 4]], [[3, 6]]]

    scenario(body)


def test_an_idle_runtime_answers_at_once_when_there_is_no_delay() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        await ask(batcher, 1)
        await ask(batcher, 2)
        assert model.sizes == [1, 1]

    scenario(body)


def test_a_batch_stays_open_for_the_delay_and_closes_when_full() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        await asyncio.gather(*(ask(batcher, value) for value in range(4)))
        assert model.sizes == [4]

    scenario(body, max_delay_ms=60_000)


def test_many_rows_are_split_and_joined_in_order() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = await occupied(batcher, model)
        big = asyncio.create_task(ask(batcher, *range(10)))
        small = asyncio.create_task(ask(batcher, 50, 51))
        await until(lambda: batcher.held == 12)
        model.free.set()
        assert (await big).logits[:, 1].tolist() == [2 * value for value in range(10)]
        assert (await small).logits[:, 0].tolist() == [50, 51]
        await first
        assert model.sizes == [1, 4, 4, 4]

    scenario(body)


def test_batches_that_grow_and_shrink_answer_their_own_rows() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        for count in (10, 2, 10):
            answers = await asyncio.gather(*(ask(batcher, value, value + 0.5) for value in range(count)))
            assert [answer.logits[:, 0].tolist() for answer in answers] == [[value, value + 0.5] for value in range(count)]
        assert max(model.sizes) <= 8

    scenario(body, max_batch=8, queue_size=64)


def test_a_fixed_size_sees_padding_and_nobody_else_does() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        seen: list[Rows] = []

        def run(found: Rows) -> Rows:
            seen.append(found.copy())
            return np.stack([found[:, 0], found[:, 0] + 100], axis=1)

        batcher.run = run
        answer = await ask(batcher, 7, 8, 9)  # leaves numbers in the buffer
        assert answer.logits.tolist() == [[7, 107], [8, 108], [9, 109]]
        answers = await asyncio.gather(ask(batcher, 1), ask(batcher, 2))
        assert [answer.logits.tolist() for answer in answers] == [[[1, 101]], [[2, 102]]]
        assert [len(rows) for rows in seen] == [4, 2]
        assert seen[0][:, 0].tolist() == [7, 8, 9, 0]
        await ask(batcher, 3)
        assert seen[-1][:, 0].tolist() == [3, 0]

    scenario(body, max_delay_ms=50, sizes=(2, 4))


def test_a_batch_of_one_whole_request_is_not_copied() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        own = rows(1, 2, 3)
        shared: list[bool] = []

        def run(found: Rows) -> Rows:
            shared.append(np.shares_memory(found, own))
            return found

        batcher.run = run
        with batcher.place(3) as place:
            await place.answer(own, batcher.clock() + LATER)
        assert shared == [True]

    scenario(body)
