"""The servers in turn, round after round, so that whatever else the machine does meets all of them alike."""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from load import Post, closed_loop, open_loop
from processes import awake, cpu_seconds, megabytes
from servers import Posts

LIMIT_S = 2.0


@dataclass
class Contestant:
    """A server that runs, and what each round found of it by kind of body."""

    name: str
    pid: int
    port: int
    posts: Posts
    start_s: float | None = None
    cpu_ms: dict[str, list[float]] = field(default_factory=dict)
    rate: dict[str, list[float]] = field(default_factory=dict)
    latencies: dict[str, list[float]] = field(default_factory=dict)
    memory_mb: float = 0.0

    def measure(self, kind: str, connections: int, requests: int) -> None:
        """One round, after some requests that wake what stood still and do not count."""
        with awake(self.pid):
            closed_loop(self.port, self.posts[kind], connections, 2 * connections)
            before = cpu_seconds(self.pid)
            seen = closed_loop(self.port, self.posts[kind], connections, requests)
            self.cpu_ms.setdefault(kind, []).append(1000 * (cpu_seconds(self.pid) - before) / requests)
            self.rate.setdefault(kind, []).append(requests / seen.seconds)
            self.latencies.setdefault(kind, []).extend(seen.latencies)
            self.memory_mb = max(self.memory_mb, megabytes(self.pid))

    def quantile_ms(self, kind: str, share: float) -> float:
        return float(1000 * np.quantile(self.latencies[kind], share))


def limit_ms(bundle: Path, batch: int, core: int) -> dict[str, float]:
    """Processor milliseconds of a picture without HTTP, by kind of body; see limits.py."""
    program = str(Path(__file__).with_name("limits.py"))
    words = ["taskset", "-c", str(core), sys.executable, program, str(bundle), str(batch), str(LIMIT_S)]
    found: dict[str, float] = json.loads(subprocess.check_output(words))
    return {"tensor": found["session"], "JPEG": found["pipeline"]}


def compared(
    contestants: list[Contestant], kinds: list[str], limit: Callable[[], dict[str, float]], rounds: int, **load: int
) -> dict[str, list[float]]:
    """Fill in what each contestant costs; the limits of each round are the answer."""
    limits: dict[str, list[float]] = {kind: [] for kind in kinds}
    for each in contestants:
        for kind in kinds:
            with awake(each.pid):
                closed_loop(each.port, each.posts[kind], load["connections"], 4 * load["connections"])  # to warm up
    for number in range(rounds):
        sys.stderr.write(f"round {number + 1} of {rounds}\n")
        found = limit()
        for kind in kinds:
            limits[kind].append(found[kind])
            for each in contestants:
                each.measure(kind, **load)
    return limits


def steady(server: Contestant, kind: str, share: float, requests: int) -> tuple[float, float, float]:
    """Milliseconds: median of one request at a time, and median and p99 at this share of the rate that it can do."""
    posts: list[Post] = server.posts[kind]
    with awake(server.pid):
        alone = closed_loop(server.port, posts, 1, 60).latencies
        seen = open_loop(server.port, posts, share * statistics.median(server.rate[kind]), requests).latencies
    half, most = np.quantile(seen, (0.5, 0.99))
    return 1000 * statistics.median(alone), 1000 * float(half), 1000 * float(most)
