"""SIGTERM: readiness falls, everybody in flight is answered, the process ends with 0, whoever idles."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

IN_FLIGHT = 20


@pytest.mark.parametrize("signals", [1, 2])
def test_requests_in_flight_are_answered(
    slow: Path,
    run_server: Callable[..., Any],
    make_picture: Callable[..., Image.Image],
    encode: Callable[..., bytes],
    signals: int,
) -> None:
    png = encode(make_picture(1))
    patient = ("--drain-timeout-s", "100")  # on a busy machine twenty answers take their time
    with run_server(slow, options=("--max-batch", "1", "--drain-delay-s", "0.5", *patient)) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
        idle[0].sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")

        def client(_: int) -> int:
            with server.http() as own:
                return int(own.post("/v1/classify", content=png).status_code)

        with ThreadPoolExecutor(IN_FLIGHT) as threads, server.http() as http:
            answers = [threads.submit(client, index) for index in range(IN_FLIGHT)]
            while in_flight(http) < IN_FLIGHT:
                time.sleep(0.005)
            for _ in range(signals):
                os.kill(server.process.pid, signal.SIGTERM)
                time.sleep(0.05)
            ready = http.get("/v2/health/ready")
            assert (ready.status_code, ready.json()["ready"], ready.json()["code"]) == (503, False, "draining")
            assert http.get("/v2/health/live").status_code == 200
            assert [answer.result() for answer in answers] == [200] * IN_FLIGHT
        assert server.process.wait(timeout=100) == 0
        for connection in idle:
            connection.close()


def in_flight(http: httpx.Client) -> float:
    """Requests besides the one that asks; the queue's gauge would fall while the model works."""
    text = http.get("/metrics").text
    line = next(line for line in text.splitlines() if line.startswith("gaussport_requests_in_flight "))
    done = sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith('gaussport_requests_total{method="POST"')
    )
    return float(line.rpartition(" ")[2]) - 1 + done


def test_an_idle_server_ends_at_once_though_clients_stay_connected(tiny: Path, run_server: Callable[..., Any]) -> None:
    with run_server(tiny) as server, socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b'{"live":true}'):
            answer += connection.recv(1000)
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(timeout=15) == 0
        assert connection.recv(1000) == b""


def test_what_cannot_be_answered_in_time_is_told_so(
    slow: Path, run_server: Callable[..., Any], make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]
) -> None:
    png = encode(make_picture(1))
    options = ("--max-batch", "1", "--drain-timeout-s", "1.5", "--queue-size", "5000", "--max-images", "600")
    patient = ("--timeout-ms", "600000")  # else what the queue cannot answer in time is refused with 429 at once
    with run_server(slow, options=(*options, *patient)) as server:
        statuses: list[int] = []

        def client() -> None:
            with server.http() as own:
                statuses.append(own.post("/v1/classify", files=[("file", ("x", png))] * 600).status_code)

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        with server.http() as http:
            while "gaussport_batch_size_count" not in http.get("/metrics").text or in_flight(http) < 4:
                time.sleep(0.005)
        os.kill(server.process.pid, signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert server.process.wait(timeout=20) == 0
        assert set(statuses) <= {200, 503}
        assert 503 in statuses


def test_interrupting_twice_ends_without_waiting(tiny: Path, run_server: Callable[..., Any]) -> None:
    unfinished = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    with (
        run_server(tiny, options=("--drain-delay-s", "0.1")) as server,
        socket.create_connection(("127.0.0.1", server.port)) as connection,
    ):
        connection.sendall(unfinished)
        for _ in range(2):
            os.kill(server.process.pid, signal.SIGINT)
            time.sleep(0.3)
        assert server.process.wait(timeout=15) == 0


def test_a_tls_handshake_left_lying_holds_nobody_up(tiny: Path, run_server: Callable[..., Any]) -> None:
    """Neither a connection's place, beyond the time that a request may take to arrive, nor the end of the server."""
    tls = Path(__file__).parent / "tls"
    options = ("--tls-cert", str(tls / "cert.pem"), "--tls-key", str(tls / "key.pem"), "--body-timeout-s", "0.5")
    hello = b"\x16\x03\x01\x02\x00"
    with run_server(tiny, options=options) as server, socket.create_connection(("127.0.0.1", server.port), 20) as lying:
        lying.sendall(hello)
        assert lying.recv(1) == b""  # closed by the server
    longer = (*options[:-1], "50")
    with run_server(tiny, options=longer) as server, socket.create_connection(("127.0.0.1", server.port)) as lying:
        lying.sendall(hello)
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=25)
        assert server.process.returncode == 0
