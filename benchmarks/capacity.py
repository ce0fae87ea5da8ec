"""What one server gives on this machine: pictures a second, time to answer and processor time, as the load rises.

    python benchmarks/capacity.py BUNDLE PICTURE … --json capacity.json

Steps of 1, 2, 4 … clients, each sending one picture after the other; the server has --cores cores to itself as far as the
machine lets it. `gaussport plan` reads the file.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("pictures", type=Path, nargs="+")
    parser.add_argument("--cores", type=int, default=1, help="cores that the server may use (default: 1)")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a step (default: 6)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--engine", choices=("plain", "ray"), default="plain", help="of gaussport serve (default: plain)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured, for gaussport plan")
    wish = parser.parse_args()
    bodies = [path.read_bytes() for path in wish.pictures]
    cores = sorted(os.sched_getaffinity(0))[: wish.cores]
    command = [sys.executable, "-m", "gaussport", "serve", str(wish.bundle), "--port", "0", "--engine", wish.engine]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().rpartition(" on ")[2].strip()
        steps = [measured(url, server.pid, bodies, clients, wish.seconds) for clients in (1, *wish.clients)][
            1:
        ]  # one to warm up
        server.send_signal(signal.SIGTERM)
    for step in steps:
        console.print(
            f"{step['clients']:3} clients  {step['rps']:7.1f} pictures/s  half within {step['p50_ms']:6.1f} ms, 99 % within "
            f"{step['p99_ms']:6.1f} ms  {step['cpu_ms']:5.2f} ms of one core each"
        )
    if wish.json:
        model = json.loads((wish.bundle / "bundle.json").read_text())["name"]
        document = {"model": model, "cores": wish.cores, "machine": platform.machine(), "steps": steps}
        wish.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def measured(url: str, pid: int, bodies: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """One step. Anything but 200 ends the program: a figure of refusals would mislead."""
    times: list[float] = []
    lock, stop = threading.Lock(), time.monotonic() + seconds
    before = processor_seconds(pid)

    def send(first: int) -> None:
        mine = []
        with httpx.Client(trust_env=False, timeout=60) as client:
            count = first
            while (began := time.monotonic()) < stop:
                client.post(f"{url}/v1/classify", content=bodies[count % len(bodies)]).raise_for_status()
                mine.append(time.monotonic() - began)
                count += 1
        with lock:
            times.extend(mine)

    threads = [threading.Thread(target=send, args=(index,)) for index in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not times:
        raise SystemExit("a request failed: see above")
    half, most = np.percentile(times, [50, 99]) * 1000
    cost = 1000 * (processor_seconds(pid) - before) / len(times)
    facts = {"rps": len(times) / seconds, "p50_ms": half, "p99_ms": most, "cpu_ms": cost}
    return {"clients": clients, **{key: round(float(value), 3) for key, value in facts.items()}}


def processor_seconds(pid: int) -> float:
    """Of the process and all that came of it."""
    process = Path(f"/proc/{pid}")
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        children = [int(child) for task in process.glob("task/*/children") for child in task.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it ended while we looked
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(processor_seconds, children))


if __name__ == "__main__":
    sys.exit(main())
