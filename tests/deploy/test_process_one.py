"""As process 1 of its container the server has no default action for signals: it handles them from its first moment on."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]


def _can_be_process_one() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not _can_be_process_one(), reason="this machine lets nobody make a process namespace")


@contextmanager
def process_one(*words: str | Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """`gaussport serve`, and its process id as the outside numbers it."""
    command = [*ALONE, sys.executable, "-m", "gaussport", "serve", *map(str, words), "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, _inner(process.pid)
        finally:
            process.kill()


def _inner(outer: int) -> int:
    children = Path(f"/proc/{outer}/task/{outer}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    namespaces = Path(f"/proc/{found[0]}/status").read_text().partition("NSpid:")[2].splitlines()[0].split()
    assert namespaces[-1] == "1"
    return int(found[0])


def _signal(pid: int, number: signal.Signals) -> None:
    subprocess.run(["kill", f"-{number.name.removeprefix('SIG')}", str(pid)], check=True)


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_sigterm_ends_it_with_0(bundle: Path, options: tuple[str, ...]) -> None:
    with process_one(bundle, *options) as (process, pid):
        assert process.stdout is not None
        url = process.stdout.readline().rpartition(" on ")[2].strip()
        assert httpx.get(f"{url}/v2/health/ready", trust_env=False).status_code == 200
        _signal(pid, signal.SIGTERM)
        assert process.wait(30) == 0


def test_sigterm_while_it_loads_ends_it_with_0(bundle: Path) -> None:
    with process_one(bundle) as (process, pid):
        while not _handles(pid, signal.SIGTERM):
            assert process.poll() is None
            time.sleep(0.002)
        _signal(pid, signal.SIGTERM)
        assert process.wait(30) == 0


def _handles(pid: int, number: signal.Signals) -> bool:
    """Without a handler the kernel would drop a signal to process 1."""
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].splitlines()[0].strip()
    return bool(int(caught, 16) >> (number - 1) & 1)
