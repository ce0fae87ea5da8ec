"""Several workers are one server: one port, one count of requests, one end; a dead one is replaced."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image


@pytest.fixture
def png(make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]) -> bytes:
    return encode(make_picture(5))


def children(server: Any) -> list[int]:
    path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(child) for child in path.read_text().split()]


def value(text: str, series: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(series))


def scrape(server: Any) -> str:
    """One scrape over a connection of its own: whichever worker answers."""
    with server.http() as http:
        return str(http.get("/metrics").text)


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.05)


def test_two_workers_count_as_one_and_a_dead_one_is_replaced(tiny: Path, run_server: Callable[..., Any], png: bytes) -> None:
    answered = 'gaussport_requests_total{method="POST",route="/v1/classify",status="200"}'
    with run_server(tiny, options=("--workers", "2")) as server:
        first = children(server)
        assert len(first) == 2

        def client(_: int) -> int:
            with server.http() as http:
                return int(http.post("/v1/classify", content=png).status_code)

        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(client, range(40))) == {200}
        for _ in range(4):
            text = scrape(server)
            assert value(text, answered) == 40
            assert value(text, "gaussport_model_info{") == 2
            assert value(text, "gaussport_requests_in_flight ") == 1
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(set(children(server)) - {first[0]}) == 2 and value(scrape(server), "gaussport_model_info{") == 2)
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(client, range(40))) == {200}
        assert value(scrape(server), answered) == 80
        server.process.send_signal(signal.SIGTERM)
        out, err = server.process.communicate(timeout=30)
        assert server.process.returncode == 0
        assert out == ""
        assert err.count("\n") == 1
        assert f"(process {first[0]}) ended with code -9 and is started again" in err


def test_workers_answer_what_is_in_flight_when_told_to_stop(slow: Path, run_server: Callable[..., Any], png: bytes) -> None:
    with run_server(slow, options=("--workers", "2", "--max-batch", "1", "--drain-delay-s", "0.5")) as server:
        statuses: list[int] = []

        def client() -> None:
            with server.http() as http:
                statuses.append(http.post("/v1/classify", content=png).status_code)

        threads = [threading.Thread(target=client) for _ in range(20)]
        for thread in threads:
            thread.start()
        until(lambda: value(scrape(server), "gaussport_requests_in_flight ") > 1)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert statuses == [200] * 20
        assert server.process.wait(timeout=30) == 0


def test_workers_do_not_outlive_their_supervisor(tiny: Path, run_server: Callable[..., Any]) -> None:
    with run_server(tiny, options=("--workers", "2")) as server:
        orphans = children(server)
        server.process.kill()
        until(lambda: not any(Path(f"/proc/{orphan}/cmdline").exists() and cmdline(orphan) for orphan in orphans))


def cmdline(process: int) -> bytes:
    """Empty for one that has ended and is not waited for, which is nobody's here."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def test_a_fault_of_the_start_is_told_once(tmp_path: Path, run_server: Callable[..., Any]) -> None:
    match = r"did not start: gaussport serve: .* does not exist[^\n]*\n$"
    with (
        pytest.raises(pytest.fail.Exception, match=match),
        run_server(tmp_path / "missing", options=("--workers", "2")),
    ):
        pass


def test_connections_that_wait_at_the_end_are_answered(slow: Path, run_server: Callable[..., Any], png: bytes) -> None:
    """Clients that come and go while the server stops are answered or refused, never cut off."""
    with run_server(slow, options=("--drain-delay-s", "0.3")) as server:
        stop = threading.Event()
        faults: list[str] = []
        answered: list[int] = []

        def client() -> None:
            with server.http() as http:
                while not stop.is_set():
                    try:
                        answered.append(http.post("/v1/classify", content=png).status_code)
                    except httpx.ConnectError:
                        return  # the port is closed
                    except httpx.HTTPError as error:
                        faults.append(repr(error))
                        return

        threads = [threading.Thread(target=client) for _ in range(16)]
        for thread in threads:
            thread.start()
        until(lambda: len(answered) > 40)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=30) == 0
        stop.set()
        for thread in threads:
            thread.join()
        assert faults == []
        assert set(answered) == {200}
