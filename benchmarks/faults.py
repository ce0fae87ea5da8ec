"""Some minutes of what a public endpoint meets: overload, broken pictures, clients that vanish or trickle, reloads, kills.

    python benchmarks/faults.py [--minutes 5] [--bundle BUNDLE] [--workers N]

Every accepted picture's answer is compared with what the bundle says of that picture alone. Ends with exit code 0 only if
all of that was right, refusals were 4xx or said when to return, at most one answer of a hundred was a deadline's, the memory
stayed flat after the warm-up, nothing was left over, SIGTERM lost nobody and a killed server was back in time. Linux; the
server's processes share this machine's cores with the clients: other work on it may make a run fail.
"""

import argparse
import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from faults_clients import Clients, Tally
from faults_samples import SIDE, Sample, Samples
from faults_server import BODY_TIMEOUT_S, DEADLINE_MS, MODEL, family, free_port, processor_s, resident_mb, server
from rich.console import Console
from rich.table import Table

from gaussport.models import zoo

OVERLOAD = 2.0
TRICKLING = 20  # connections at once that send a byte a second
RELOAD_EVERY_S = 5.0
MEMORY_GROWTH, RESTART_S = 0.05, 2.0
WARM_UP, WARM_UP_S, JUDGED_S = 0.25, 30.0, 60.0
"""The memory is judged after a quarter of the run, half a minute at least, and where a minute is left."""
LATE = 0.01  # of the answers may be 504: the queue is bounded by a rate measured before, and machines have neighbours
RESTARTS = 3
HELD = {"gaussport_requests_in_flight", "gaussport_body_bytes", "gaussport_queue_images"}
ON_THE_WAY_S = 0.5  # beyond the deadline, from a client to the server and back

console = Console(highlight=False, soft_wrap=True)


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


class Run(Clients):
    """One run against one models directory."""

    def __init__(self, models: Path, samples: Samples, workers: int, rng: random.Random) -> None:
        super().__init__(free_port(), samples, rng)
        self.models, self.workers = models, workers
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = models.parent / "errors"
        self.memory: list[float] = []
        self.lags: list[float] = []
        """Seconds by which this process woke up too late: what it adds to the times that it measures."""

    async def everything(self, seconds: float) -> int:
        checks: list[tuple[str, str, bool]] = []
        with server(self.models, self.port, self.workers, self.log) as process:
            capacity = await self.capacity()
            console.print(
                f"capacity {capacity:.0f} pictures/s; {seconds:.0f} s of mixed traffic at {OVERLOAD:g} times that …"
            )
            await self.mixed(process, capacity * OVERLOAD, seconds)
            checks += [*self.judged(seconds), await self.left_over()]
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

    def client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=60, limits=limits)

    async def mixed(self, process: subprocess.Popen[str], per_s: float, seconds: float) -> None:
        stop = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reload(process, stop))
            group.create_task(self.watch(process, stop))
            group.create_task(self.watch_myself(stop))
            for _ in range(TRICKLING):
                group.create_task(self.trickle(stop))
            due = time.monotonic()
            while (now := time.monotonic()) < stop:
                due = max(due + self.rng.expovariate(per_s), now - 1)  # a client that is late does not catch up by a flood
                await asyncio.sleep(max(0.0, due - now))
                group.create_task(self.one())

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

    async def watch(self, process: subprocess.Popen[str], stop: float) -> None:
        """The memory of the server each second, and every ten of them a line of how it goes."""
        began = time.monotonic()
        while time.monotonic() < stop:
            await asyncio.sleep(1)
            self.memory.append(sum(map(resident_mb, family(process.pid))))
            if len(self.memory) % 10 == 0:
                answers, wrong = (sum(found.values()) for found in (self.tally.statuses, self.tally.faults))
                console.print(
                    f"{time.monotonic() - began:4.0f} s: {answers} answers, {self.tally.late} late, {wrong} wrong, "
                    f"{self.memory[-1]:.0f} MB"
                )

    async def watch_myself(self, stop: float) -> None:
        while (began := time.monotonic()) < stop:
            await asyncio.sleep(0.05)
            self.lags.append(time.monotonic() - began - 0.05)

    def judged(self, seconds: float) -> list[tuple[str, str, bool]]:
        tally = self.tally
        p50, p99 = np.quantile(tally.seconds, (0.5, 0.99))
        lag_s = float(np.quantile(self.lags, 0.99))
        reloads = max(tally.versions) - min(tally.versions)
        late = tally.late / len(tally.seconds)
        shown = ", ".join(f"{count} × {status}" for status, count in sorted(tally.statuses.items()))
        faults = ", ".join(f"{count} × {what}" for what, count in tally.faults.items())
        trickled = ", ".join(f"{count} {what}" for what, count in self.trickled.items())
        times = f"median {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, the clients themselves late by {lag_s * 1000:.0f} ms"
        return [
            ("answers", f"{sum(tally.statuses.values())} in {seconds:.0f} s: {shown}", tally.statuses["200"] > 0),
            ("what must not happen", faults or "nothing", not tally.faults),
            ("time to answer", times, p99 <= DEADLINE_MS / 1000 + ON_THE_WAY_S),
            ("ended by the deadline", f"{tally.late} ({late:.1%})", late <= LATE),
            ("hot reloads answered by", f"{reloads} newer versions", reloads > 0 or seconds < 2 * RELOAD_EVERY_S),
            ("trickling connections", trickled, not self.trickled["too late"]),
            self.judged_memory(),
        ]

    def judged_memory(self) -> tuple[str, str, bool]:
        """Its median just after the warm-up and at the end."""
        rest = self.memory[int(max(len(self.memory) * WARM_UP, WARM_UP_S)) :]
        if len(rest) < JUDGED_S:
            return ("memory", f"up to {max(self.memory):.0f} MB; growth is not judged in a run as short as this", True)
        fifth = len(rest) // 5
        before, after = (float(np.median(part)) for part in (rest[:fifth], rest[-fifth:]))
        growth = after / before - 1
        shown = f"{before:.0f} MB → {after:.0f} MB ({growth:+.1%}), between {min(rest):.0f} and {max(rest):.0f} MB"
        return ("memory", shown, growth < MEMORY_GROWTH)

    async def left_over(self) -> tuple[str, str, bool]:
        """What the server says it still holds when nobody asks it any more, but this question, and its answers of 5xx."""
        await asyncio.sleep(BODY_TIMEOUT_S + 1)
        async with self.client() as http:
            lines = (await http.get("/metrics")).text.splitlines()
        values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
        held = {name: value for name, value in values.items() if name.partition("{")[0] in HELD and value}
        held |= {name: value for name, value in values.items() if 'status="500"' in name}
        held["gaussport_requests_in_flight"] -= 1
        shown = ", ".join(f"{name} {value:g}" for name, value in held.items() if value)
        return ("left over", shown or "nothing", not shown)

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
        """Kill a server and time another one on the same port until it answers a picture: the median of some."""
        took_s, worked_s = (float(np.median(each)) for each in zip(*(self.restart() for _ in range(RESTARTS)), strict=True))
        return ("answers again after kill -9", f"{took_s:.2f} s, {worked_s:.2f} s of a processor", took_s <= RESTART_S)

    def restart(self) -> tuple[float, float]:
        """Seconds until the first answer, and seconds of a processor that they cost the server."""
        sample = self.samples.good[0]
        with server(self.models, self.port, self.workers, self.log) as process:
            self.one_answer(sample)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            began = time.monotonic()
            with server(self.models, self.port, self.workers, self.log) as again:
                self.one_answer(sample)
                return time.monotonic() - began, sum(map(processor_s, family(again.pid)))

    def one_answer(self, sample: Sample) -> None:
        with httpx.Client(base_url=self.url, trust_env=False, timeout=60) as http:
            http.post("/v1/classify", params={"top_k": 1000}, content=sample.body).raise_for_status()


if __name__ == "__main__":
    sys.exit(main())
