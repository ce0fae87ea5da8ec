"""Some minutes of what a public endpoint meets: overload, broken pictures, clients that vanish or trickle, reloads, kills.

    python benchmarks/faults.py [--minutes 5] [--bundle BUNDLE] [--workers N]

Every accepted picture's answer is compared with what the bundle says of that picture alone. Ends with exit code 0 only if
all of that was right, nothing but 4xx, 429 and 503 was refused, memory stayed flat, SIGTERM lost nobody and a killed server
was back in time. Linux; the server's processes share this machine's cores with the clients.
"""

import argparse
import asyncio
import contextlib
import io
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from gaussport.errors import ImageError
from gaussport.export.bundle.store import open_bundle
from gaussport.models import zoo
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import to_pixels
from gaussport.serving.predictions import probabilities
from gaussport.serving.runtime import Runtime

MODEL = "model"
DEADLINE_MS = 4000.0
BODY_TIMEOUT_S = 5.0
QUEUE_IMAGES = 32
SIDE = 640  # of the pictures: large enough for decoding to cost more than asking
TOLERANCE = 1e-5  # of probabilities: batches differ in size, and with it the order of float32 sums
BROKEN, VANISHING, OVERLOAD = 0.10, 0.10, 2.0
TRICKLING = 20  # connections at once that send a byte a second
RELOAD_EVERY_S = 5.0
MEMORY_GROWTH, WARM_UP, RESTART_S = 0.05, 0.25, 2.0
LATE = 0.01  # of the answers may be 504: the queue is bounded by a rate measured before, and machines have neighbours
ON_THE_WAY_S = 0.5  # beyond the deadline, from a client to the server and back

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Sample:
    """A body to send, and the probabilities [K] it must be answered with; None for one that must be refused."""

    body: bytes
    expected: NDArray[np.float64] | None


@dataclass
class Tally:
    """What came of the requests."""

    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    """What must not happen."""
    seconds: list[float] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    late: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="of mixed traffic (default: 5)")
    parser.add_argument("--bundle", type=Path, help="what to serve (default: the zoo's mnist-ssog, exported first)")
    parser.add_argument("--workers", type=int, default=1, help="serving processes (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the traffic (default: 0)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        root = Path(folder)
        bundle = arguments.bundle or exported(root / "bundle")
        shutil.copytree(bundle, root / "models" / MODEL / "1")
        samples = Samples(bundle, random.Random(arguments.seed))
        console.print(f"{len(samples.good)} good pictures of {SIDE} pixels, {len(samples.broken)} broken ones")
        run = Run(root / "models", samples, arguments.workers, random.Random(arguments.seed))
        return asyncio.run(run.everything(arguments.minutes * 60))


def exported(destination: Path) -> Path:
    words = [sys.executable, "-m", "gaussport", "export", str(zoo.path("mnist-ssog")), "-o", str(destination)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return destination


class Samples:
    """Pictures of every kind that is good but odd, each with its own answer, and broken ones."""

    def __init__(self, bundle: Path, rng: random.Random) -> None:
        runtime = Runtime(open_bundle(bundle), threads=1)
        spec = runtime.manifest.preprocessing
        bodies = [body for index in range(12) for body in _kinds(picture(index))]
        pixels = [to_pixels(decode(body, spec.background).rgb, spec) for body in bodies]
        expected = [probabilities(runtime.run(rows[None]))[0] for rows in pixels]
        self.good = [Sample(body, answer) for body, answer in zip(bodies, expected, strict=True)]
        self.broken = [Sample(body, None) for body in _broken(bodies[0], bodies[1], rng)]
        for sample in self.broken:
            with contextlib.suppress(ImageError):
                decode(sample.body)
                raise SystemExit("a picture that should be broken is not")


def picture(seed: int) -> Image.Image:
    """A picture of its own for each seed: coarse noise, so that it compresses like a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((SIDE, SIDE * 3 // 4), Image.Resampling.BICUBIC)


def _kinds(image: Image.Image) -> Iterator[bytes]:
    upside_down = Image.Exif()
    upside_down[0x0112] = 3
    see_through = image.copy()
    see_through.putalpha(image.convert("L"))
    yield _saved(image, "JPEG", quality=85)
    yield _saved(image, "PNG", compress_level=1)
    yield _saved(image, "JPEG", quality=85, exif=upside_down)
    yield _saved(see_through, "WEBP", quality=80)
    yield _saved(image.quantize(64), "GIF")
    yield _saved(image.convert("CMYK"), "JPEG", quality=85)


def _broken(jpeg: bytes, png: bytes, rng: random.Random) -> Iterator[bytes]:
    yield from (
        b"",
        b"hello",
        b"II*\0" + jpeg,
        jpeg[: len(jpeg) // 2],
        png[: len(png) // 2],
        png[:40],
        b"\xff\xd8\xff" + png,
    )
    yield png[:16] + b"\0\0\xff\xff" * 2 + png[24:]  # says that it has four thousand million pixels
    yield rng.randbytes(5000)


def _saved(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


@contextlib.contextmanager
def server(models: Path, port: int, workers: int, log: Path) -> Iterator[subprocess.Popen[str]]:
    """`gaussport serve`, ready."""
    words = ["serve", str(models), "--port", str(port), "--workers", str(workers), "--queue-size", str(QUEUE_IMAGES)]
    words += ["--timeout-ms", str(DEADLINE_MS), "--body-timeout-s", str(BODY_TIMEOUT_S), "--drain-delay-s", "0.5"]
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "gaussport", *words], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit(log.read_text())
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Run:
    """One run against one models directory."""

    def __init__(self, models: Path, samples: Samples, workers: int, rng: random.Random) -> None:
        self.models, self.samples, self.workers, self.rng = models, samples, workers, rng
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = models.parent / "errors"
        self.tally = Tally()
        self.memory: list[float] = []
        self.trickled: Counter[str] = Counter()

    async def everything(self, seconds: float) -> int:
        checks: list[tuple[str, str, bool]] = []
        with server(self.models, self.port, self.workers, self.log) as process:
            capacity = await self.capacity()
            console.print(
                f"capacity {capacity:.0f} pictures/s; {seconds:.0f} s of mixed traffic at {OVERLOAD:g} times that …"
            )
            await self.mixed(process, capacity * OVERLOAD, seconds)
            checks += self.judged(seconds)
            console.print("SIGTERM under load …")
            checks.append(await self.terminated(process, capacity))
        console.print("kill -9 and restart …")
        checks.append(self.restarted())
        words = self.log.read_text().count("Traceback")
        checks.append(("tracebacks in the server's log", str(words), words == 0))
        table = Table("what", "measured", "right")
        for name, shown, right in checks:
            table.add_row(name, shown, "yes" if right else "[red]NO[/]")
        console.print(table)
        return 0 if all(right for _, _, right in checks) else 1

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

    def client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=60, limits=limits)

    async def mixed(self, process: subprocess.Popen[str], per_s: float, seconds: float) -> None:
        stop = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reload(process, stop))
            group.create_task(self.watch_memory(process, stop))
            for _ in range(TRICKLING):
                group.create_task(self.trickle(stop))
            due = time.monotonic()
            while (now := time.monotonic()) < stop:
                due = max(due + self.rng.expovariate(per_s), now - 1)  # a client that is late does not catch up by a flood
                await asyncio.sleep(max(0.0, due - now))
                group.create_task(self.one())

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
        self.tally.seconds.append(time.monotonic() - began)
        self.judge(sample, response)

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
        if response.status_code == 504:
            tally.late += 1
        elif response.status_code in (429, 503):
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

    async def reload(self, process: subprocess.Popen[str], stop: float) -> None:
        """A new version every few seconds, and the one before it gone."""
        number = 1
        while time.monotonic() < stop - RELOAD_EVERY_S:
            await asyncio.sleep(RELOAD_EVERY_S)
            folder = self.models / MODEL
            shutil.copytree(folder / str(number), folder / "next")
            (folder / "next").rename(folder / str(number + 1))
            process.send_signal(signal.SIGHUP)
            if number > 1:
                shutil.rmtree(folder / str(number - 1))
            number += 1

    async def watch_memory(self, process: subprocess.Popen[str], stop: float) -> None:
        while time.monotonic() < stop:
            await asyncio.sleep(1)
            self.memory.append(sum(map(_resident_mb, _family(process.pid))))

    def judged(self, seconds: float) -> list[tuple[str, str, bool]]:
        tally, memory = self.tally, self.memory
        rest = memory[int(len(memory) * WARM_UP) :]
        fifth = max(1, len(rest) // 5)
        before, after = statistics.median(rest[:fifth]), statistics.median(rest[-fifth:])
        p50, p99 = np.quantile(tally.seconds, (0.5, 0.99))
        reloads = max(tally.versions) - min(tally.versions)
        shown = ", ".join(f"{count} × {status}" for status, count in sorted(tally.statuses.items()))
        faults = ", ".join(f"{count} × {what}" for what, count in tally.faults.items())
        trickled = ", ".join(f"{count} {what}" for what, count in self.trickled.items())
        return [
            ("answers", f"{sum(tally.statuses.values())} in {seconds:.0f} s: {shown}", tally.statuses["200"] > 0),
            ("what must not happen", faults or "nothing", not tally.faults),
            (
                "time to answer",
                f"median {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms",
                p99 <= DEADLINE_MS / 1000 + ON_THE_WAY_S,
            ),
            (
                "deadline passed",
                f"{tally.late} ({tally.late / len(tally.seconds):.1%})",
                tally.late <= LATE * len(tally.seconds),
            ),
            ("hot reloads answered by", f"{reloads} newer versions", reloads > 0 or seconds < 2 * RELOAD_EVERY_S),
            ("trickling connections", trickled, not self.trickled["too late"]),
            ("memory", f"{before:.0f} MB → {after:.0f} MB ({after / before - 1:+.1%})", after / before - 1 < MEMORY_GROWTH),
        ]

    async def terminated(self, process: subprocess.Popen[str], per_s: float) -> tuple[str, str, bool]:
        """Stop the server while clients ask: each is answered, or finds the port closed."""
        self.tally = Tally()
        answered = closed = cut = 0

        async def client(http: httpx.AsyncClient) -> None:
            nonlocal answered, closed, cut
            while True:
                sample = self.rng.choice(self.samples.good)
                try:
                    response = await http.post("/v1/classify", params={"top_k": 1000}, content=sample.body)
                except httpx.ConnectError:
                    closed += 1
                    return
                except httpx.HTTPError:
                    cut += 1
                    return
                self.judge(sample, response)
                answered += 1

        async with self.client() as http:
            clients = [asyncio.create_task(client(http)) for _ in range(24)]
            await asyncio.sleep(2)
            process.send_signal(signal.SIGTERM)
            await asyncio.gather(*clients)
        code = await asyncio.to_thread(process.wait, 60)
        shown = f"{answered} answered, {closed} found the port closed, {cut} cut off, exit code {code}"
        return ("SIGTERM under load", shown, not cut and code == 0 and not self.tally.faults)

    def restarted(self) -> tuple[str, str, bool]:
        """Kill a server and time another one on the same port until it answers a picture."""
        sample = self.samples.good[0]
        with server(self.models, self.port, self.workers, self.log) as process:
            with httpx.Client(base_url=self.url, trust_env=False) as http:
                http.post("/v1/classify", content=sample.body)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            began = time.monotonic()
            with server(self.models, self.port, self.workers, self.log):
                with httpx.Client(base_url=self.url, trust_env=False) as http:
                    response = http.post("/v1/classify", params={"top_k": 1000}, content=sample.body)
                took_s = time.monotonic() - began
        right = response.status_code == 200 and took_s <= RESTART_S
        return ("answers again after kill -9", f"{took_s:.2f} s", right)


def _family(process: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *map(int, children)]


def _resident_mb(process: int) -> float:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
