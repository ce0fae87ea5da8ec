"""The queue of explanations: one thread of its own, so that classifying never waits for somebody's curiosity.

A request holds its place until its work has really ended, also when its client has long gone.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from gaussport.errors import GaussportError
from gaussport.export.bundle.manifest import EXPLAIN_FILE
from gaussport.serving.cores import after_the_event_loop
from gaussport.serving.errors import RequestError
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.served_model import ServedModel

log = logging.getLogger("gaussport.serving")

T = TypeVar("T")

_MEMORY = 0.8  # of the seconds measured before is kept when another explanation ends


class ExplainQueue:
    """At most `places` explanations run or wait. A model's session is made when it is first asked about."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._pool = ThreadPoolExecutor(1, "explain", after_the_event_loop)
        self._pending: set[Future[Any]] = set()
        self._explainers: WeakKeyDictionary[ServedModel, Explainer] = WeakKeyDictionary()
        self._seconds = 0.0

    def expect_room(self) -> None:
        """RequestError `queue_full` when every place is taken."""
        if len(self._pending) >= self._places:
            wait = max(1, math.ceil(self._seconds * len(self._pending)))
            raise RequestError("too many explanations are under way: retry later", "queue_full", wait)

    def expect_explainable(self, served: ServedModel) -> None:
        """RequestError `not_found` for a model that cannot be explained: asked before the body is read."""
        if EXPLAIN_FILE not in served.manifest.files:
            raise RequestError(
                f"{served.name} cannot be explained: its bundle has no {EXPLAIN_FILE}, because its attention is not "
                "Gaussian or an older gaussport wrote it",
                "not_found",
            )

    async def run(self, served: ServedModel, work: Callable[[Explainer], T]) -> T:
        """What `work` makes with the model's explainer, in the queue's thread. RequestError when there is no room."""
        self.expect_room()
        future = self._pool.submit(self._timed, partial(self._with_explainer, served, work))
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _with_explainer(self, served: ServedModel, work: Callable[[Explainer], T]) -> T:
        if served not in self._explainers:
            try:
                self._explainers[served] = Explainer(served.bundle, threads=1)
            except GaussportError as error:
                log.warning("%s cannot be explained: %s", served.name, error)
                raise RequestError(
                    f"{served.name} cannot be explained now: the server's log says why", "not_ready"
                ) from error
        return work(self._explainers[served])

    def _timed(self, work: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return work()
        finally:
            took = time.monotonic() - began
            self._seconds = _MEMORY * self._seconds + (1 - _MEMORY) * took if self._seconds else took
