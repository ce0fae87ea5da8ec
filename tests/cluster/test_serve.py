"""A Ray cluster under load: a machine is lost, a new version is rolled out, and every answer is the right one."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from gaussport.serving.client import Client
from tests.cluster.conftest import WORDS, Machines, classified

RESENDS = 3
CLIENTS = 6


class Load:
    """Clients that never stop asking, and everything that they were answered."""

    def __init__(self, url: str, pictures: list[Path]) -> None:
        self.url, self.pictures = url, pictures
        self.answers: list[tuple[int, dict[str, float]]] = []
        self.sent = 0
        self.failed: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        def count(_: httpx.Request) -> None:
            self.sent += 1

        with Client(self.url, connections=1, resend=RESENDS, unreachable_s=20) as client:
            client._http.event_hooks["request"].append(count)
            index = number
            while not self._stop.is_set():
                at = index % len(self.pictures)
                try:
                    [answer] = client.classify([self.pictures[at]])
                    assert answer.error is None, answer.error
                    self.answers.append((at, {each["label"]: each["probability"] for each in answer.predictions}))
                except BaseException as error:  # noqa: BLE001 - whatever it is, the test must see it
                    self.failed.append(error)
                    return
                index += CLIENTS


def until(true: Callable[[], bool], patience_s: float = 60) -> None:
    """Wait; the patience is for a machine that does other things too."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < patience_s, "it never came to be"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


def deploy(machines: Machines, bundle: Path, port: int, home: Path) -> None:
    """As a user would: our configuration file, Ray's command."""
    file = home / "serve.yaml"
    options = ["--engine", "ray", "--replicas", "2", "--port", str(port), "--max-delay-ms", "1"]
    file.write_bytes(
        subprocess.run([*WORDS, "serve", bundle, *options, "--print-ray-config"], capture_output=True, check=True).stdout
    )
    command = [str(Path(sys.executable).parent / "serve"), "deploy", str(file), "--address", machines.dashboard]
    subprocess.run(command, capture_output=True, check=True)


def test_a_machine_lost_and_a_version_rolled_out_cost_no_answer(
    machines: Machines, bundles: tuple[Path, Path], pictures: list[Path], port: int, tmp_path: Path
) -> None:
    first, second = (classified(bundle, pictures) for bundle in bundles)
    url = f"http://127.0.0.1:{port}"
    deploy(machines, bundles[0], port, tmp_path)
    until(lambda: status(url) == 200)

    with Load(url, pictures) as load:
        until(lambda: len(load.answers) > 60 or bool(load.failed))
        machines.lose(machines.workers[0])
        answered = len(load.answers)
        until(lambda: len(load.answers) > answered + 120 or bool(load.failed))
    assert not load.failed
    assert only(first, load.answers)
    assert load.sent > len(load.answers), "nothing was on its way to the machine that was lost: the test proves nothing"

    machines.workers.append(machines.add())
    with Load(url, pictures) as load:
        deploy(machines, bundles[1], port, tmp_path)
        until(lambda: bool(load.failed) or only(second, load.answers[-40:]))
    assert not load.failed
    assert all(only(first, [each]) or only(second, [each]) for each in load.answers)
    assert load.sent == len(load.answers), "a rollout needs no request to be sent again"


def only(model: list[dict[str, float]], answers: list[tuple[int, dict[str, float]]]) -> bool:
    """Whether each of these answers is this model's."""
    return bool(answers) and all(answer == pytest.approx(model[at], abs=1e-5) for at, answer in answers)


def status(url: str) -> int:
    try:
        return httpx.get(f"{url}/v2/health/ready", timeout=2, trust_env=False).status_code
    except httpx.TransportError:
        return 0
