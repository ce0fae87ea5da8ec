"""`/metrics` of a cluster: whichever replica is asked answers for all, each series with the label `replica`.

Replicas pin their metrics to a board, an actor that lives in the cluster without a core of its own. When it is lost the next
to report puts up another; a replica that reports no more is off the board after a while.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gaussport.serving.cluster.quiet_ray import ray
from gaussport.serving.metrics import CONTENT_TYPE, Metrics

_EVERY_S = 2.0
_FORGOTTEN_AFTER_S = 15.0
_PATIENCE_S = 2.0


class Board:
    """What every replica said last. Runs as an actor."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, str]] = {}

    def pin(self, replica: str, text: str) -> None:
        self._said[replica] = (time.monotonic(), text)

    def texts(self) -> dict[str, str]:
        since = time.monotonic() - _FORGOTTEN_AFTER_S
        self._said = {replica: said for replica, said in self._said.items() if said[0] > since}
        return {replica: text for replica, (_, text) in self._said.items()}


class MetricsBoard:
    """One replica's way to the board."""

    def __init__(self, metrics: Metrics) -> None:
        from ray import serve

        self._metrics = metrics
        self._board: Any = None
        self._replica = serve.get_replica_context().replica_id.unique_id

    async def report(self) -> None:
        """Pin ours, again and again."""
        while True:
            with contextlib.suppress(ray.exceptions.RayError):  # its machine went: the next round puts up another
                self._board = await asyncio.to_thread(_found_or_put_up)
                await self._board.pin.remote(self._replica, self._metrics.text().decode())
            await asyncio.sleep(_EVERY_S)

    async def page(self) -> bytes:
        """Everybody's, ours as of now; ours alone while there is no board."""
        texts: dict[str, str] = {}
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            if self._board is not None:
                async with asyncio.timeout(_PATIENCE_S):
                    texts = dict(await self._board.texts.remote())
        return merged(texts | {self._replica: self._metrics.text().decode()})


def _found_or_put_up() -> Any:
    actor = ray.remote(Board)
    return actor.options(name="gaussport-metrics", namespace="gaussport", get_if_exists=True, num_cpus=0).remote()


def merged(texts: Mapping[str, str]) -> bytes:
    """One text of several, each sample with the label of whose it is."""
    registry = CollectorRegistry()
    registry.register(_Merged(texts))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for replica, text in sorted(self._texts.items()):
            for found in text_string_to_metric_families(text):
                family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                family.samples += [sample._replace(labels=sample.labels | {"replica": replica}) for sample in found.samples]
        yield from families.values()


@dataclass(frozen=True)
class ClusterMetrics:
    """Middleware: `/metrics` is the page of the whole cluster."""

    app: ASGIApp
    page: Callable[[], Awaitable[bytes]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/metrics" and scope["method"] == "GET":
            await Response(await self.page(), headers={"Content-Type": CONTENT_TYPE})(scope, receive, send)
        else:
            await self.app(scope, receive, send)
