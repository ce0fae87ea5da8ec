"""The clients of the fault run: good ones, whose answers are compared, and those that vanish or trickle."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
import numpy as np
from faults_samples import Sample, Samples
from faults_server import BODY_TIMEOUT_S, DEADLINE_MS

TOLERANCE = 1e-5  # of probabilities: batches differ in size, and with it the order of float32 sums
BROKEN, VANISHING = 0.10, 0.10


@dataclass
class Tally:
    """What came of the requests."""

    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    """What must not happen."""
    seconds: list[float] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    late: int = 0
    """Those that were let in and waited for nothing: 504."""


class Clients:
    """They ask the server at a port of this machine."""

    def __init__(self, port: int, samples: Samples, rng: random.Random) -> None:
        self.port, self.samples, self.rng = port, samples, rng
        self.tally = Tally()
        self.trickled: Counter[str] = Counter()

    async def capacity(self, seconds: float = 6.0) -> float:
        """Pictures that the server answers in a second when sixteen clients never stop asking."""
        done = 0
        stop = time.monotonic() + seconds

        async def client() -> None:
            nonlocal done
            while time.monotonic() < stop:
                await self.ask(self.rng.choice(self.samples.good).body)
                done += 1

        await asyncio.gather(*(client() for _ in range(16)))
        return done / seconds

    async def one(self) -> None:
        draw = self.rng.random()
        if draw < VANISHING:
            await self.vanish(self.rng.choice(self.samples.good).body)
            return
        sample = self.rng.choice(self.samples.broken if draw < VANISHING + BROKEN else self.samples.good)
        began = time.monotonic()
        try:
            response = await self.ask(sample.body)
        except (OSError, EOFError, ValueError) as error:
            self.tally.faults[f"cut off: {type(error).__name__}"] += 1
            return
        took_s = time.monotonic() - began
        self.tally.seconds.append(took_s)
        self.judge(sample, response)
        if response.status_code == 504 and took_s < DEADLINE_MS / 1000:
            self.tally.faults["a deadline that passed too early"] += 1

    async def ask(self, body: bytes) -> httpx.Response:
        """One request over a connection of its own. By hand: a connection pool would cost more than the server does."""
        head = "POST /v1/classify?top_k=1000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines if line)
            response = httpx.Response(int(status.split()[1]), headers=headers)
            return httpx.Response(
                response.status_code,
                headers=headers,
                content=await reader.readexactly(int(response.headers["content-length"])),
            )
        finally:
            writer.close()

    def judge(self, sample: Sample, response: httpx.Response) -> None:
        tally, content = self.tally, response.json()
        if response.status_code == 200:
            tally.statuses["200"] += 1
            tally.versions.add(int(content["version"]))
            best = sorted(content["results"][0]["predictions"], key=lambda entry: entry["index"])
            found = np.array([entry["probability"] for entry in best])
            if sample.expected is None or np.abs(found - sample.expected).max() > TOLERANCE:
                tally.faults["a wrong answer"] += 1
            return
        tally.statuses[f"{response.status_code} {content['code']}"] += 1
        if response.status_code in (429, 503, 504):
            tally.late += response.status_code == 504
            if not response.headers.get("retry-after", "").isdecimal():
                tally.faults["a refusal without Retry-After"] += 1
        elif sample.expected is not None or response.status_code not in (400, 415, 422):
            tally.faults[f"{response.status_code} for a {'good' if sample.expected is not None else 'broken'} picture"] += 1

    async def vanish(self, body: bytes) -> None:
        """Send some of a request, or all, and be gone without a word."""
        head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        message = head + body
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(message[: self.rng.randint(1, len(message))] if self.rng.random() < 0.5 else message)
            await writer.drain()
            await asyncio.sleep(self.rng.random() * 0.2)
            writer.transport.abort()

    async def trickle(self, stop: float) -> None:
        """A head or a body that comes a byte a second, again and again; the server must end each within its time."""
        while time.monotonic() < stop - BODY_TIMEOUT_S - 3:
            head = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\n"
            head += b"Content-Length: 100000\r\n\r\n" if self.rng.random() < 0.5 else b""
            began = time.monotonic()
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(head)
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            if not await reader.read(1000):
                                break
                            continue
                    writer.write(b"x")
                writer.close()
            late = time.monotonic() - began > BODY_TIMEOUT_S + 3
            self.trickled["too late" if late else "ended in time"] += 1
