"""The batcher alone: who goes first, and that nobody starves."""

import asyncio
import itertools
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gaussport.serving.batcher import Batcher, BatchLimits, Place
from gaussport.serving.waiting import Waiting
from tests.serving.batching import LATER, Model, ask, occupied, scenario, until


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
