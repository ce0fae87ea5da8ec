"""The queue of texts alone, with a model of our own: who waits for whom, how much is padding, what is turned away."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaussport.models.text import Tokenization
from gaussport.serving.batcher import BatchLimits
from gaussport.serving.errors import RequestError
from gaussport.serving.text.lengths import SHORTEST, fitting, lengths_up_to
from gaussport.serving.text.queue import BATCH_TOKENS, LengthQueue
from gaussport.serving.text.running import rows_of, without_padding

Tokens = NDArray[np.int64]
PAD, LONGEST = 256, 5000


class Model:
    """Answers each row with its sum and its length; rows above 1024 tokens wait until `free`."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.free, self.begun = threading.Event(), threading.Event()

    def __call__(self, rows: Tokens) -> NDArray[np.float32]:
        self.shapes.append(rows.shape)
        if rows.shape[1] > 1024:
            self.begun.set()
            self.free.wait(20)
        real = rows != PAD
        return np.stack([np.where(real, rows, 0).sum(axis=1), real.sum(axis=1)], axis=1).astype(np.float32)


def scenario(body: Callable[[LengthQueue[Tokens], Model], Coroutine[Any, Any, None]], **limits: Any) -> None:
    async def run() -> None:
        model = Model()
        asked = BatchLimits(**({"max_batch": 8, "max_delay_ms": 1, "queue_size": 64} | limits))
        queue = LengthQueue(model, asked, rows_of(Tokenization.of_bytes(LONGEST)), LONGEST)
        queue.start()
        try:
            await asyncio.wait_for(body(queue, model), 20)
        finally:
            model.free.set()
            await queue.close()
        assert queue.held == 0

    asyncio.run(run())


def text(length: int, seed: int = 0) -> Tokens:
    return np.random.default_rng(length * 31 + seed).integers(0, 256, length)


async def ask(queue: LengthQueue[Tokens], *rows: Tokens, within_s: float = 15.0) -> NDArray[np.float32]:
    return (await queue.answer(rows, queue.clock() + within_s)).logits


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_short_text_does_not_wait_for_a_long_one() -> None:
    async def body(queue: LengthQueue[Tokens], model: Model) -> None:
        long = asyncio.ensure_future(ask(queue, text(4000)))
        await until(model.begun.is_set)
        for length in (1, 64, 900):
            assert (await ask(queue, text(length)))[0].tolist() == [text(length).sum(), length]
        assert not long.done()
        model.free.set()
        assert (await long)[0, 1] == 4000

    scenario(body)


@given(lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=30))
@settings(max_examples=25, deadline=None)
def test_rows_of_any_lengths_come_back_in_their_order(lengths: list[int]) -> None:
    async def body(queue: LengthQueue[Tokens], model: Model) -> None:
        model.free.set()
        rows = [text(length, seed) for seed, length in enumerate(lengths)]
        found = await ask(queue, *rows)
        assert found.tolist() == [[row.sum(), len(row)] for row in rows]
        for size, length in model.shapes:
            assert size <= 8
            assert size * length <= BATCH_TOKENS
            assert length in queue.lengths

    scenario(body)


@given(length=st.integers(1, 1 << 20), most=st.integers(1, 1 << 20))
def test_less_than_a_third_of_a_long_row_is_padding(length: int, most: int) -> None:
    lengths = lengths_up_to(most)
    assert lengths[-1] == most
    assert list(lengths) == sorted(set(lengths))
    if length <= most:
        found = fitting(length, lengths)
        assert length <= found
        assert found <= SHORTEST or (found - length) / found < 1 / 3


def test_the_bound_is_for_all_lengths_together() -> None:
    async def body(queue: LengthQueue[Tokens], model: Model) -> None:
        waiting = []
        for length in (1100, 2100, 3100):
            waiting.append(asyncio.ensure_future(ask(queue, text(length))))
            await until(lambda: len(model.shapes) == len(waiting))  # those in the model no longer count
        waiting += [asyncio.ensure_future(ask(queue, text(length))) for length in (1100, 2100, 3100)]
        await until(lambda: queue.held == 3)
        with pytest.raises(RequestError) as caught:
            await ask(queue, text(5))
        assert (caught.value.code, caught.value.retry_after_s) == ("queue_full", 1)
        model.free.set()
        assert len(await asyncio.gather(*waiting)) == 6

    scenario(body, queue_size=3)


def test_who_leaves_or_is_late_costs_nothing() -> None:
    async def body(queue: LengthQueue[Tokens], model: Model) -> None:
        first = asyncio.ensure_future(ask(queue, text(4000)))
        await until(model.begun.is_set)
        gone = asyncio.ensure_future(ask(queue, text(4000), text(3), text(4001)))
        with pytest.raises(RequestError) as caught:
            await ask(queue, text(4000), within_s=0.05)
        assert caught.value.code == "deadline_passed"
        gone.cancel()
        await asyncio.wait([gone])
        await until(lambda: queue.held == 0)
        model.free.set()
        await first
        assert sum(size for size, length in model.shapes if length > 1024) == 1

    scenario(body)


def test_a_text_of_many_windows_lets_others_between() -> None:
    async def body(queue: LengthQueue[Tokens], model: Model) -> None:
        many = asyncio.ensure_future(ask(queue, *(text(60, seed) for seed in range(200))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert queue.held <= 16
        assert len(await ask(queue, text(59))) == 1
        assert len(await many) == 200

    scenario(body, queue_size=32)


def test_a_batch_is_cut_to_its_longest_row() -> None:
    rows = np.full((3, 64), PAD)
    rows[0, :5], rows[1, :9] = 1, 2
    np.testing.assert_array_equal(without_padding(rows, PAD), rows[:, :9])
    assert without_padding(np.full((2, 64), PAD), PAD).shape == (2, 1)
