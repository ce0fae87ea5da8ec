"""The life of one serving process: listen, load, say so in one line, and on SIGTERM answer what is there and end with 0.

While the models load, `/v2/health/live` answers and `/v2/health/ready` says 503. On SIGTERM readiness falls at once and each
answer closes its connection; after `drain_delay_s` the port closes; requests in flight and in the queue are answered; what
is still waiting shortly before `drain_timeout_s` gets 503. Idle connections are simply closed. SIGHUP looks for new bundles.
"""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from gaussport.errors import GaussportError
from gaussport.serving.api_keys import ApiKeys
from gaussport.serving.app import build_app
from gaussport.serving.connection import quiet_config
from gaussport.serving.garbage import expect_little_garbage
from gaussport.serving.listening import BACKLOG, accepted, address_of, check_tls, listen
from gaussport.serving.served_models import ServedModels
from gaussport.serving.settings import Settings
from gaussport.serving.shares import cores_each, shares

log = logging.getLogger("gaussport.serving")

_ACCEPTED_AT_ONCE = 16  # new connections in one turn of the loop; other workers take some too
_LAST_WORDS_S = 1.0
"""Before the drain's end, for the 503s of those that will not be answered to reach their clients."""
_HANDSHAKE_GRACE_S = 1.0
"""For TLS handshakes that are under way when the port closes."""


def serve(paths: Sequence[Path], settings: Settings, announce: Callable[[str], None]) -> int:
    """Serve until told to stop. `announce` gets the one line that says what, where and how."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the loop runs; as PID 1 there is no default action
    check_tls(settings.tls_cert, settings.tls_key)
    with listen(settings.host, settings.port) as listener:
        address = address_of(settings.host, listener, settings.tls_cert is not None)

        def ready(names: Sequence[str]) -> None:
            share = shares(settings, cores_each(settings))
            workers = f"{settings.workers} workers, " if settings.workers > 1 else ""
            how = f"{settings.provider}, {workers}{_counted(share.threads * share.at_once, 'thread')}"
            announce(f"gaussport serving {', '.join(names)} ({how}) on {address}")

        if settings.workers > 1:
            from gaussport.serving.supervisor import supervise

            return supervise(paths, settings, listener, ready)
        run(paths, settings, listener, ready)
    return 0


def run(
    paths: Sequence[Path],
    settings: Settings,
    listener: socket.socket,
    ready: Callable[[Sequence[str]], None],
    stop_when: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve in this process on a socket that listens. `ready` gets the models' names once they are warm; the server also
    stops when `stop_when` returns. A worker takes no connection before it is ready: the others do."""
    app = build_app(paths, settings)
    process = _Process(app, settings, listener)
    with asyncio.Runner(loop_factory=process.server.config.get_loop_factory()) as runner:
        runner.run(process.live(ready, stop_when))


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves signals alone, as it would end by raising them again, and takes connections itself.

    uvloop takes one new connection in each turn of its loop: when a turn is long, as on a busy machine, they pile up in
    the kernel, where no limit of ours can refuse them. And at the end those that wait there would be cut off.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket, handshake_timeout_s: float) -> None:
        super().__init__(config)
        self._listener = listener
        self._handshake_timeout_s = handshake_timeout_s if config.is_ssl else None
        self._connecting: set[asyncio.Task[object]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._accept, _ACCEPTED_AT_ONCE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._accept(BACKLOG)
        self._listener.close()
        if self._connecting:  # a TLS handshake may still end; one that its client has left lying may not hold us up
            await asyncio.wait(self._connecting, timeout=_HANDSHAKE_GRACE_S)
            for task in self._connecting:
                task.cancel()
        await super().shutdown()

    def _accept(self, most: int) -> None:
        loop = asyncio.get_running_loop()
        for connection in accepted(self._listener, most):
            greeting = loop.connect_accepted_socket(
                self._protocol, connection, ssl=self.config.ssl, ssl_handshake_timeout=self._handshake_timeout_s
            )
            task: asyncio.Task[object] = loop.create_task(greeting)
            self._connecting.add(task)
            task.add_done_callback(self._greeted)

    def _greeted(self, task: "asyncio.Task[object]") -> None:
        self._connecting.discard(task)
        if not task.cancelled():
            task.exception()  # a client that breaks off its TLS handshake is its own affair

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


class _Process:
    """One process's server, its models and what signals do to them."""

    def __init__(self, app: FastAPI, settings: Settings, listener: socket.socket) -> None:
        tls = settings.tls_cert, settings.tls_key
        config = quiet_config(app, settings.body_timeout_s, settings.keep_alive_s, *tls, refused=app.state.refused)
        config.timeout_graceful_shutdown = max(1, math.floor(settings.drain_timeout_s - settings.drain_delay_s))
        self.server = _Server(config, listener, settings.body_timeout_s)
        self._models: ServedModels = app.state.models
        self._keys: ApiKeys = app.state.keys
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()

    async def live(self, ready: Callable[[Sequence[str]], None], stop_when: Callable[[], Awaitable[None]] | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._begin(self._refresh()))
        if stop_when is not None:
            self._begin(self._stop_after(stop_when))
        loading = self._begin(self._load(ready))
        if self._settings.workers > 1:
            await loading
        await self.server.serve()
        if loading.done():
            loading.result()  # raises what kept the models from loading

    def _begin(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, ready: Callable[[Sequence[str]], None]) -> None:
        try:
            await self._models.load_all()
        except BaseException:
            self.server.should_exit = True
            raise
        expect_little_garbage()
        ready(self._models.names)
        if self._settings.poll_s:
            self._begin(self._poll())

    async def _poll(self) -> None:
        while not self._models.draining:
            await asyncio.sleep(self._settings.poll_s)
            await self._models.refresh()

    async def _refresh(self) -> None:
        try:
            self._keys.read()
        except GaussportError as error:
            log.error("the API keys stay as they were: %s", error)
        try:
            self._read_certificate()
        except GaussportError as error:
            log.error("the certificate stays as it was: %s", error)
        if not self._models.loading:
            await self._models.refresh()

    def _read_certificate(self) -> None:
        """For connections from now on; those that are open keep theirs."""
        certificate, key = self._settings.tls_cert, self._settings.tls_key
        if certificate is not None and self.server.config.ssl is not None:
            check_tls(certificate, key)
            self.server.config.ssl.load_cert_chain(certificate, key, password="")

    async def _stop_after(self, stop_when: Callable[[], Awaitable[None]]) -> None:
        await stop_when()
        self._stop(signal.SIGTERM)

    def _stop(self, number: signal.Signals) -> None:
        if self._models.draining:
            # A second Ctrl-C is a person who does not want to wait; a second SIGTERM is a supervisor repeating itself.
            self.server.force_exit = self.server.force_exit or number == signal.SIGINT
            return
        if self._models.loading:
            os._exit(0)  # nobody is being served, and a model that is half loaded in a thread cannot be told to stop
        self._models.draining = True
        loop, settings = asyncio.get_running_loop(), self._settings
        loop.call_later(settings.drain_delay_s, setattr, self.server, "should_exit", True)
        patience_s = max(settings.drain_timeout_s / 2, settings.drain_timeout_s - _LAST_WORDS_S)
        loop.call_later(patience_s, lambda: self._begin(self._models.close()))


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
