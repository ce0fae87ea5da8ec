"""The life of the serving process: load, listen, say so in one line, and on SIGTERM answer what is there and end with 0.

On SIGTERM readiness falls at once; after `drain_delay_s` the port closes; requests in flight and in the queue are
answered; what is still waiting shortly before `drain_timeout_s` gets 503. Idle connections are simply closed.
"""

import asyncio
import contextlib
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from gaussport.errors import ServingError
from gaussport.export.bundle.store import open_bundle
from gaussport.serving.app import build_app
from gaussport.serving.connection import quiet_config
from gaussport.serving.served_model import ServedModels
from gaussport.serving.settings import Settings

_LAST_WORDS_S = 1.0
"""Before the drain's end, for the 503s of those that will not be answered to reach their clients."""


def serve(paths: Sequence[Path], settings: Settings, announce: Callable[[str], None]) -> int:
    """Serve until told to stop. `announce` gets the one line that says where."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # while loading; as PID 1 there is no default action
    listener = _listener(settings.host, settings.port)
    try:
        app = build_app([open_bundle(path, check_hashes=False) for path in paths], settings)
        models: ServedModels = app.state.models
        address = _url(settings.host, listener)
        server = _server(app, settings, lambda: announce(f"gaussport serving {', '.join(models.names)} on {address}"))
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(_run(server, listener, models, settings))
    finally:
        listener.close()
    return 0


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when it listens and leaves signals alone: it would end by raising them again."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: FastAPI, settings: Settings, listening: Callable[[], None]) -> _Server:
    config = quiet_config(app, settings.body_timeout_s, settings.keep_alive_s)
    config.timeout_graceful_shutdown = max(1, math.floor(settings.drain_timeout_s - settings.drain_delay_s))
    return _Server(config, listening)


async def _run(server: _Server, listener: socket.socket, models: ServedModels, settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    refusing: set[asyncio.Task[None]] = set()

    async def refuse_the_rest() -> None:
        for model in models:
            await model.batcher.close()

    def stop(number: signal.Signals) -> None:
        if models.draining:
            # A second Ctrl-C is a person who does not want to wait; a second SIGTERM is a supervisor repeating itself.
            server.force_exit = server.force_exit or number == signal.SIGINT
            return
        models.draining = True
        loop.call_later(settings.drain_delay_s, setattr, server, "should_exit", True)
        patience_s = max(settings.drain_timeout_s / 2, settings.drain_timeout_s - _LAST_WORDS_S)
        loop.call_later(patience_s, lambda: refusing.add(loop.create_task(refuse_the_rest())))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        await server.serve(sockets=[listener])
    except OSError as error:
        raise ServingError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error


BACKLOG = 2048  # connections that wait to be accepted; uvicorn's own default


def _listener(host: str, port: int) -> socket.socket:
    """A listening socket, before the models load: a port in use is told at once.

    It listens here, not when uvicorn starts: two processes may bind one port, and only one of them may listen.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise ServingError(f"cannot listen on {host}:{port}: no such address, give another --host or --port") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ServingError(f"cannot listen on {host}:{port}: {reason}; choose another --port, or 0") from error
    return listener


def _url(host: str, listener: socket.socket) -> str:
    return f"http://[{host}]:{listener.getsockname()[1]}" if ":" in host else f"http://{host}:{listener.getsockname()[1]}"
