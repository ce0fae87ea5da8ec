"""Limits hold while the body streams in, whatever its sender announced, compressed or not."""

import gzip
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

MEGABYTE = 1_000_000


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json()["code"]) == (status, code), response.text


def chunks(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b"\0" * 100_000


def test_an_announced_body_over_the_limit_is_refused(http: httpx.Client) -> None:
    refused(http.post("/v1/classify", content=b"\0" * (2 * MEGABYTE + 1)), 413, "body_too_large")


def test_a_chunked_body_over_the_limit_is_refused(http: httpx.Client) -> None:
    refused(http.post("/v1/classify", content=chunks(40)), 413, "body_too_large")


def test_a_body_at_the_limit_is_read(http: httpx.Client) -> None:
    refused(http.post("/v1/classify", content=chunks(20)), 415, "not_an_image")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_bomb_is_refused(http: httpx.Client, coding: str) -> None:
    zeros = b"\0" * (100 * MEGABYTE)
    bomb = gzip.compress(zeros, 1) if coding == "gzip" else zlib.compress(zeros, 1)
    assert len(bomb) < MEGABYTE
    refused(http.post("/v1/classify", content=bomb, headers={"content-encoding": coding}), 413, "body_too_large")


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("gzip", lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:])),
        ("identity", bytes),
    ],
    ids=["gzip", "x-gzip", "zlib", "raw deflate", "two members", "identity"],
)
def test_compressed_bodies_are_read(
    http: httpx.Client,
    make_picture: Callable[..., Image.Image],
    encode: Callable[..., bytes],
    coding: str,
    pack: Callable[[bytes], bytes],
) -> None:
    png = encode(make_picture(1))
    plain = http.post("/v1/classify", content=png).json()["results"]
    packed = http.post("/v1/classify", content=pack(png), headers={"content-encoding": coding})
    assert packed.json()["results"] == plain


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"\x1f\x8bjunk", lambda data: data[:-9] + b"x" * 9])
def test_a_damaged_compressed_body_is_refused(http: httpx.Client, damage: Callable[[bytes], bytes]) -> None:
    body = damage(gzip.compress(b"picture" * 100))
    refused(http.post("/v1/classify", content=body, headers={"content-encoding": "gzip"}), 400, "malformed_encoding")


def test_an_unknown_encoding_is_refused(http: httpx.Client) -> None:
    response = http.post("/v1/classify", content=b"x", headers={"content-encoding": "br"})
    refused(response, 415, "unsupported_media_type")


def test_a_slow_sender_is_told_and_a_silent_one_closed(tiny: Path, run_server: Callable[..., Any]) -> None:
    with run_server(tiny, options=("--body-timeout-s", "0.3")) as server:
        slow_body = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx"
        assert b" 408 " in answer_to(server.port, slow_body).split(b"\r\n")[0]
        assert answer_to(server.port, b"POST /v1/cla") == b""
        assert answer_to(server.port, b"") == b""
        assert b"malformed_http" in answer_to(server.port, b"\0\1\2\r\n\r\n")


def test_a_client_that_leaves_in_mid_upload_is_no_error(http: httpx.Client, server: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
    for _ in range(100):
        text = http.get("/metrics").text
        if 'status="499"' in text:
            break
        time.sleep(0.02)
    assert 'route="/v1/classify",status="499"' in text
    assert 'status="500"' not in text
    assert "gaussport_requests_in_flight 1.0" in text  # this one


def test_pipelined_requests_are_answered_in_order(server: Any) -> None:
    request = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX-Request-ID: %d\r\n\r\n"
    last = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX-Request-ID: 2\r\nConnection: close\r\n\r\n"
    answer = answer_to(server.port, request % 0 + request % 1 + last)
    assert [line[-1:] for line in answer.split(b"\r\n") if line.lower().startswith(b"x-request-id")] == [b"0", b"1", b"2"]


def answer_to(port: int, data: bytes) -> bytes:
    """Send, then read until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer
