"""The batcher alone, with a model of our own: what it batches, whom it answers, whom it turns away."""

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaussport.serving.batcher import Batcher, BatchLimits, Place
from gaussport.serving.errors import RequestError
from gaussport.serving.waiting import Answer, Waiting

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


def test_a_full_queue_says_when_to_come_back() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = await occupied(batcher, model)
        waiting = [asyncio.create_task(ask(batcher, value)) for value in range(16)]
        await until(lambda: batcher.held == 16)
        with pytest.raises(RequestError) as caught:
            await ask(batcher, 99)
        assert caught.value.code == "queue_full"
        assert caught.value.retry_after_s == 1
        model.free.set()
        await asyncio.gather(first, *waiting)

    scenario(body)


def test_retry_after_follows_the_measured_rate() -> None:
    now = 100.0
    batcher = Batcher(Model(), BatchLimits(4), clock=lambda: now)
    assert batcher.retry_after_s() == 1
    with batcher.place(8):
        now += 4.0  # decoding and inference: two images a second
        batcher.drain.answered(8, now)
    place = batcher.place(9)
    assert batcher.retry_after_s() == 5
    place.keep(0)
    assert batcher.retry_after_s() == 1


def test_time_without_requests_does_not_count_against_the_rate() -> None:
    now = 100.0
    batcher = Batcher(Model(), BatchLimits(4), clock=lambda: now)
    for _ in range(3):
        with batcher.place(2):
            now += 1.0
            batcher.drain.answered(2, now)
        now += 3600.0
    assert batcher.drain.seconds_for(10) == pytest.approx(5.0)


def test_a_request_that_cannot_be_answered_in_time_is_refused_before_it_waits() -> None:
    now = 100.0
    batcher = Batcher(Model(), BatchLimits(4, queue_size=100), clock=lambda: now)
    with batcher.place(10):
        now += 10.0
        batcher.drain.answered(10, now)  # one image a second
    batcher.place(1, within_s=0.5)  # nobody waits: it is tried
    with pytest.raises(RequestError) as caught:
        batcher.place(1, within_s=0.5)
    assert (caught.value.code, caught.value.retry_after_s) == ("queue_full", 1)
    batcher.place(20, within_s=5)
    with pytest.raises(RequestError) as caught:
        batcher.expect_room(within_s=20)
    assert (caught.value.code, caught.value.retry_after_s) == ("queue_full", 21)
    assert batcher.held == 21
    batcher.expect_room(within_s=22)
    assert batcher.held == 21


def test_more_images_than_the_queue_holds_are_refused_for_good() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        assert await code_of(ask(batcher, *range(17))) == "too_many_images"

    scenario(body)


def test_a_place_is_given_back_when_decoding_fails() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        with pytest.raises(ZeroDivisionError), batcher.place(5):
            raise ZeroDivisionError
        with batcher.place(5) as place:  # three of five pictures were bad
            await place.answer(rows(1, 2), batcher.clock() + LATER)

    scenario(body)


def test_the_expired_are_told_at_once_and_never_run() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = await occupied(batcher, model)
        assert await code_of(ask(batcher, 7, within_s=0.02)) == "deadline_passed"
        assert not first.done()
        model.free.set()
        await first
        await ask(batcher, 1)
        assert model.sizes == [1, 1]

    scenario(body)


def test_the_cancelled_leave_before_they_cost_anything() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = await occupied(batcher, model)
        gone, stays = asyncio.create_task(ask(batcher, 7, 8)), asyncio.create_task(ask(batcher, 9))
        await until(lambda: batcher.held == 3)
        gone.cancel()
        await until(lambda: batcher.held == 1)
        model.free.set()
        assert (await stays).logits.tolist() == [[9, 18]]
        await first
        assert model.sizes == [1, 1]

    scenario(body)


def test_one_cancelled_in_the_model_does_not_disturb_its_neighbours() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = await occupied(batcher, model)
        first.cancel()
        second = asyncio.create_task(ask(batcher, 5))
        model.free.set()
        assert (await second).logits.tolist() == [[5, 10]]

    scenario(body)


def test_the_urgent_go_first() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = await occupied(batcher, model)
        order: list[str] = []

        async def noted(name: str, urgent: bool) -> None:
            await ask(batcher, 1, 2, 3, 4, urgent=urgent)
            order.append(name)

        tasks = [asyncio.create_task(noted("normal", False)), asyncio.create_task(noted("urgent", True))]
        await until(lambda: batcher.held == 8)
        model.free.set()
        await asyncio.gather(first, *tasks)
        assert order == ["urgent", "normal"]

    scenario(body)


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


def test_closing_answers_the_batch_in_the_model_and_refuses_the_rest() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        first = await occupied(batcher, model)
        waiting = asyncio.create_task(ask(batcher, 1))
        await until(lambda: batcher.held == 1)
        closing = asyncio.create_task(batcher.close())
        assert await code_of(waiting) == "draining"
        assert await code_of(ask(batcher, 2)) == "draining"
        model.free.set()
        assert (await first).logits.tolist() == [[0, 0]]
        await closing

    scenario(body)


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_the_wall_clock_may_jump(monkeypatch: pytest.MonkeyPatch, jump_s: int) -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        task = asyncio.create_task(ask(batcher, 1))
        await asyncio.sleep(0)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        answer = await task
        assert answer.queue_s >= 0
        assert answer.inference_s >= 0

    scenario(body, max_delay_ms=20)


def test_the_rows_of_an_answer_must_fit_its_place() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        with batcher.place(1) as place:
            with pytest.raises(ValueError, match="2 rows in a place for 1"):
                await place.answer(rows(1, 2), batcher.clock() + LATER)
            assert isinstance(place, Place)

    scenario(body)


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


def test_only_real_rows_are_checked() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        checked: list[int] = []
        batcher.check = lambda logits: checked.append(len(logits))
        await ask(batcher, 1, 2, 3)
        assert (model.sizes, checked) == ([4], [3])

    scenario(body, sizes=(4,))


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


class Arrival(NamedTuple):
    """Requests that come in before a batch is formed."""

    urgent: list[int]
    normal: list[int]


arrivals = st.lists(
    st.builds(Arrival, st.lists(st.integers(1, 6), max_size=4), st.lists(st.integers(1, 6), max_size=2)),
    min_size=1,
    max_size=30,
)


@given(arrivals=arrivals, max_batch=st.integers(1, 8))
def test_nobody_starves_and_rows_come_back_in_order(arrivals: list[Arrival], max_batch: int) -> None:
    """Whatever comes: the normal request at the head of its queue is in one of the next five batches, the urgent go
    first in the other four, every row is run once, and no batch is larger than it may be."""

    async def play() -> None:
        batcher = Batcher(lambda found: found, BatchLimits(max_batch, 0, 10_000))
        loop = asyncio.get_running_loop()
        run: list[tuple[int, int]] = []
        names = itertools.count()
        passed_over = 0
        for arrival in [*arrivals, *[Arrival([max_batch], [])] * 60]:
            for queue, sizes in ((batcher._urgent, arrival.urgent), (batcher._normal, arrival.normal)):
                for size in sizes:
                    found = np.full((size, 1), next(names), np.float32)
                    queue.append(Waiting(found, LATER * 1e9, 0.0, Place(batcher, size), loop.create_future()))
            urgent, normal = bool(batcher._urgent), list(batcher._normal)
            parts = batcher._form()
            assert 0 < sum(part.count for part in parts) <= max_batch or not (urgent or normal)
            run += [(int(part.rows[0, 0]), part.start + row) for part in parts for row in range(part.count)]
            if normal and not any(part.request is normal[0] for part in parts):
                passed_over += 1
            else:
                passed_over = 0
            assert passed_over <= 4
        assert len(run) == len(set(run))
        assert not batcher._normal or len(run) >= 60 * max_batch
        for name, group in itertools.groupby(sorted(run, key=lambda entry: entry[0]), key=lambda entry: entry[0]):
            assert [row for _, row in group] == list(range(sum(entry[0] == name for entry in run)))

    asyncio.run(play())
