"""The batcher alone: whom it turns away, and who leaves before a batch forms."""

import asyncio
import time

import pytest

from gaussport.serving.batcher import Batcher, BatchLimits, Place
from gaussport.serving.errors import RequestError
from tests.serving.batching import LATER, Model, ask, code_of, occupied, rows, scenario, until


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
