"""The batcher alone: what is wrong with one request is that request's own affair."""

import asyncio

import numpy as np

from gaussport.serving.batcher import Batcher
from tests.serving.batching import LATER, Model, ask, code_of, occupied, scenario, until


def test_a_bad_item_fails_alone() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        model.faults.append(lambda found: bool((found == 5).any()))
        first = await occupied(batcher, model)
        tasks = [asyncio.create_task(ask(batcher, value)) for value in (4, 5, 6)]
        await until(lambda: batcher.held == 3)
        model.free.set()
        await first
        assert (await tasks[0]).logits.tolist() == [[4, 8]]
        assert await code_of(tasks[1]) == "model_failed"
        assert (await tasks[2]).logits.tolist() == [[6, 12]]

    scenario(body)


def test_a_model_that_fails_once_is_asked_again() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        model.faults.append(lambda found: len(model.sizes) == 1)
        assert (await ask(batcher, 3)).logits.tolist() == [[3, 6]]
        assert (await ask(batcher, 4)).logits.tolist() == [[4, 8]]

    scenario(body)


def test_a_model_that_answers_another_number_of_rows_mixes_none() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        batcher.run = lambda found: np.zeros((len(found) + 1, 2), np.float32)
        assert await code_of(ask(batcher, 3)) == "model_failed"

    scenario(body)


def test_rows_of_another_shape_fail_alone() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        model.faults.append(lambda found: found.shape[1] != 1)
        first = await occupied(batcher, model)
        good = asyncio.create_task(ask(batcher, 1))
        with batcher.place(1) as place:
            odd = asyncio.create_task(place.answer(np.zeros((1, 3), np.float32), batcher.clock() + LATER))
            await until(lambda: batcher.held == 2)
            model.free.set()
            assert (await good).logits.tolist() == [[1, 2]]
            assert await code_of(odd) == "model_failed"
        await first

    scenario(body)


def test_only_real_rows_are_checked() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        checked: list[int] = []
        batcher.check = lambda logits: checked.append(len(logits))
        await ask(batcher, 1, 2, 3)
        assert (model.sizes, checked) == ([4], [3])

    scenario(body, sizes=(4,))
