"""A closed loop of keep-alive connections, each with one request on its way, that costs little beside a server.

Requests are bytes made beforehand, answers are read by their Content-Length and compared by their status alone; a first
answer of each kind of body is handed back to be looked at.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import uvloop


@dataclass(frozen=True)
class Post:
    """One HTTP request, but for its host."""

    path: str
    body: bytes
    headers: tuple[str, ...] = ()

    def wire(self) -> bytes:
        lines = (f"POST {self.path} HTTP/1.1", "Host: bench", f"Content-Length: {len(self.body)}", *self.headers)
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


@dataclass(frozen=True)
class Seen:
    """What a load saw: seconds to each answer, seconds in all, and the body of the last answer."""

    latencies: list[float]
    seconds: float
    last: bytes


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self._pending = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    async def ask(self, wire: bytes) -> bytes:
        """The body of the answer. OSError for any status but 200."""
        self._answer = asyncio.get_running_loop().create_future()
        self._pending.clear()
        self.transport.write(wire)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._pending += data
        end = self._pending.find(b"\r\n\r\n")
        if end < 0 or self._answer is None or self._answer.done():
            return
        head = bytes(self._pending[:end]).lower()
        size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        if len(self._pending) < end + 4 + size:
            return
        body = bytes(self._pending[end + 4 :])
        if b" 200" in head.split(b"\r\n")[0]:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(OSError(f"{head.decode()}\n{body[:300]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(OSError("the server closed the connection"))


def closed_loop(port: int, posts: Sequence[Post], connections: int, requests: int) -> Seen:
    """Send so many requests over so many connections, each when the one before it on its connection is answered."""
    return uvloop.run(_closed_loop(port, [post.wire() for post in posts], connections, requests))


async def _closed_loop(port: int, wires: Sequence[bytes], connections: int, requests: int) -> Seen:
    latencies: list[float] = []
    last = b""
    turns = iter(zip(range(requests), cycle(wires), strict=False))

    async def client() -> None:
        nonlocal last
        transport, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", port)
        for _, wire in turns:
            began = time.perf_counter()
            last = await connection.ask(wire)
            latencies.append(time.perf_counter() - began)
        transport.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    return Seen(latencies, time.perf_counter() - began, last)


def open_loop(port: int, posts: Sequence[Post], per_s: float, requests: int) -> Seen:
    """Send so many requests at this steady pace, whether the ones before are answered or not."""
    return uvloop.run(_open_loop(port, [post.wire() for post in posts], per_s, requests))


async def _open_loop(port: int, wires: Sequence[bytes], per_s: float, requests: int) -> Seen:
    latencies: list[float] = []
    last = b""
    idle: list[_Connection] = []

    async def one(wire: bytes, due: float) -> None:
        nonlocal last
        if idle:
            connection = idle.pop()
        else:
            _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", port)
        last = await connection.ask(wire)
        latencies.append(time.perf_counter() - due)  # from when it was due: a server that stalls cannot hide it
        idle.append(connection)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, wire in zip(range(requests), cycle(wires), strict=False):
            due = began + number / per_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(wire, due))
    for connection in idle:
        connection.transport.close()
    return Seen(latencies, time.perf_counter() - began, last)
