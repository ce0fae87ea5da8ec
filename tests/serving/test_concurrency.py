"""Many clients at once: each gets the answer that it would get alone, or is told when to come back."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

CLIENTS = 32
EACH = 4


def probabilities(response: httpx.Response) -> list[np.ndarray[Any, Any]]:
    assert response.status_code == 200, response.text
    return [
        np.array([entry["probability"] for entry in sorted(result["predictions"], key=lambda entry: entry["index"])])
        for result in response.json()["results"]
    ]


def test_32_clients_with_different_pictures_get_their_own_answers(
    tiny: Path, run_server: Callable[..., Any], make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]
) -> None:
    pictures = [encode(make_picture(seed)) for seed in range(CLIENTS)]
    with run_server(tiny, options=("--max-delay-ms", "5")) as server, server.http() as http:
        solo = [probabilities(http.post("/v1/classify?top_k=10", content=data))[0] for data in pictures]
        assert np.abs(np.diff(solo, axis=0)).max(axis=1).min() > 1e-3  # any two can be told apart
        start = threading.Barrier(CLIENTS)

        def client(index: int) -> None:
            with server.http() as own:
                start.wait()
                for turn in range(EACH):
                    seeds = [(index + step) % CLIENTS for step in range(1 + (index + turn) % 3)]
                    files = [("file", ("x", pictures[seed])) for seed in seeds]
                    answer = probabilities(own.post("/v1/classify?top_k=10", files=files))
                    np.testing.assert_allclose(answer, [solo[seed] for seed in seeds], atol=1e-6)

        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(client, range(CLIENTS)))
        text = http.get("/metrics").text
        assert 'gaussport_batch_size_bucket{le="16.0",model="tiny"}' in text
        biggest = count_of(text, 'gaussport_batch_size_bucket{le="16.0",model="tiny"}')
        assert biggest == count_of(text, 'gaussport_batch_size_count{model="tiny"}')  # no batch above 16
        assert count_of(text, 'gaussport_batch_size_bucket{le="1.0",model="tiny"}') < biggest  # and some above 1
        assert count_of(text, 'gaussport_queue_images{model="tiny"}') == 0


def test_a_batch_that_grows_and_shrinks_keeps_its_rows(
    http: httpx.Client, make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]
) -> None:
    pictures = [encode(make_picture(seed)) for seed in range(10)]
    solo = [probabilities(http.post("/v1/classify?top_k=10", content=data))[0] for data in pictures]
    for count in (10, 2, 10):
        files = [("file", ("x", data)) for data in pictures[:count]]
        answer = probabilities(http.post("/v1/classify?top_k=10", files=files))
        np.testing.assert_allclose(answer, solo[:count], atol=1e-6)


def test_a_full_queue_is_429_with_retry_after(
    slow: Path, run_server: Callable[..., Any], make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]
) -> None:
    png = encode(make_picture(1))
    with run_server(slow, options=("--queue-size", "4", "--max-batch", "2")) as server:
        start = threading.Barrier(24)

        def client(_: int) -> httpx.Response:
            with server.http() as own:
                start.wait()
                response: httpx.Response = own.post("/v1/classify", files=[("file", ("x", png))] * 2)
                return response

        with ThreadPoolExecutor(24) as threads:
            responses = list(threads.map(client, range(24)))
        full = [response for response in responses if response.status_code != 200]
        assert 0 < len(full) < 24
        for response in full:
            assert (response.status_code, response.json()["code"]) == (429, "queue_full")
            assert 1 <= int(response.headers["retry-after"]) <= 60
        with server.http() as http:
            assert http.post("/v1/classify", content=png).status_code == 200
            late = http.post("/v1/classify?timeout_ms=0.001", content=png)
            assert (late.status_code, late.json()["code"]) == (504, "deadline_passed")
            pixels = {"name": "pixels", "shape": [1, 3, 8, 8], "datatype": "FP32", "data": [0.0] * 192}
            late = http.post("/v2/models/slow/infer", json={"inputs": [pixels], "parameters": {"timeout": 1}})
            assert (late.status_code, late.json()["code"]) == (504, "deadline_passed")


def test_a_client_that_hangs_up_leaves_the_queue(
    slow: Path, run_server: Callable[..., Any], make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]
) -> None:
    png = encode(make_picture(1))
    head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(png)}\r\n\r\n".encode()
    with run_server(slow, options=("--max-delay-ms", "20000", "--max-batch", "2")) as server, server.http() as http:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head + png)
            while count_of(http.get("/metrics").text, "gaussport_decode_seconds_count") < 1:
                time.sleep(0.01)
        while 'status="499"' not in http.get("/metrics").text:
            time.sleep(0.01)
        text = http.get("/metrics").text
        assert count_of(text, 'gaussport_queue_images{model="slow"}') == 0
        assert count_of(text, 'gaussport_batch_size_count{model="slow"}') == 0
        assert 'status="500"' not in text


def test_labels_in_the_metrics_do_not_grow_with_what_clients_send(http: httpx.Client) -> None:
    def warm_up(index: int) -> None:
        http.get(f"/nothing/{index}")
        http.request(f"ODD{index}" if index % 2 else "PATCH", f"/v2/models/{index}")
        http.post(f"/v1/classify?model=m{index}", files={"file": (f"name{index}", b"x", f"type/{index}")})
        http.post(f"/v2/models/m{index}/infer", content=b"{}")

    def lines() -> int:
        return len([line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")])

    for index in range(2):
        warm_up(index)
    lines()
    before = lines()
    for index in range(2, 40):
        warm_up(index)
    assert lines() == before


def count_of(text: str, series: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(series)).rpartition(" ")[2])


@pytest.mark.parametrize("path", ["/v1/classify", "/v2/models/tiny/infer"])
def test_an_error_never_is_a_500(http: httpx.Client, path: str) -> None:
    for content in (b"", b"\0", b"{}", b"[]", b"\xff\xd8\xff", b"--", b'{"inputs": [{}]}', b'{"image": 1}'):
        for kind in ("image/jpeg", "application/json", "multipart/form-data; boundary=-", "text/plain; charset=\xff", ""):
            response = http.post(path, content=content, headers={b"content-type": kind.encode("latin-1")})
            assert 400 <= response.status_code < 500, (content, kind, response.text)
