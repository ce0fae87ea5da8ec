"""One replica: the whole application of `gaussport.serving.app`, with sessions and a batcher of its own.

Ray's proxies hand it requests as ASGI; routes, limits, errors and metrics are those of `gaussport serve`.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gaussport.serving import logs
from gaussport.serving.app import build_app
from gaussport.serving.cluster.metrics_board import ClusterMetrics, MetricsBoard
from gaussport.serving.served_models import ServedModels
from gaussport.serving.settings import Settings
from gaussport.serving.shares import shares

_LOOK_S = 0.05


class Endpoint:
    """What Ray Serve starts. A replica is routed to once its models are loaded and warm, and not before."""

    async def __init__(self, paths: Sequence[str], settings: Settings) -> None:  # type: ignore[misc]  # Ray awaits it
        """GaussportError, which Ray reports as the replica's own, when nothing can be served."""
        self._settings = within_its_share(settings)
        logs.configure(self._settings)
        self._application = build_app([Path(path) for path in paths], self._settings)
        self._models: ServedModels = self._application.state.models
        await self._models.load_all()
        board = MetricsBoard(self._models.metrics)
        self._metrics_page = board.page
        self._tasks = [asyncio.create_task(self._poll()), asyncio.create_task(board.report())]

    def __serve_build_asgi_app__(self) -> FastAPI:
        self._application.add_middleware(ClusterMetrics, page=self._metrics_page)
        self._application.add_middleware(WithoutRequestId)
        return self._application

    async def reconfigure(self, wish: Mapping[str, Any] | None) -> None:
        """Heed Ray's `user_config`: `{"stopping": true}` drains this replica, anything else looks for new bundles."""
        if (wish or {}).get("stopping"):
            await self._drain()
        elif not self._models.draining:
            await self._models.refresh()

    async def _drain(self) -> None:
        """Readiness falls at once; after the delay new requests get 503; return when those in flight are answered."""
        self._models.draining = True
        await asyncio.sleep(self._settings.drain_delay_s)
        self._models.stopped = True
        async with asyncio.timeout(self._settings.drain_timeout_s):
            while any(model.busy for model in self._models):
                await asyncio.sleep(_LOOK_S)

    async def _poll(self) -> None:
        while self._settings.poll_s and not self._models.draining:
            await asyncio.sleep(self._settings.poll_s)
            await self._models.refresh()


class WithoutRequestId:
    """Ray's proxy puts the request's id on every answer, the same that we would: once is enough."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [header for header in message["headers"] if header[0] != b"x-request-id"]
            await send(message)

        await self._app(scope, receive, send_without)


def within_its_share(settings: Settings) -> Settings:
    """Ray reserves cores but confines nobody: threads follow what was reserved unless they are set."""
    cores = max(1, math.floor(settings.replica_cpus))
    share = shares(settings, cores)
    return replace(
        settings, threads=share.threads, batches_at_once=share.at_once, decode_threads=settings.decode_threads or cores
    )
