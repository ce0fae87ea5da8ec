"""The connection by itself: whatever the network's pieces, every request gets its own body, whole."""

import asyncio
import hashlib
import json
import logging
import random
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
import uvicorn
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from gaussport.serving import arriving_body
from gaussport.serving.arriving_body import ArrivingBody
from gaussport.serving.connection import MOST_HEAD_BYTES, Connection, quiet_config
from gaussport.serving.exchange import Exchange

SIZES = st.one_of(st.integers(0, 40), st.integers(60_000, 70_000), st.integers(1_000_000, 1_300_000))


async def echo(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    """The length and hash of the body; at /refused before a byte of it is read."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    digest, more = hashlib.sha256(), scope["path"] != "/refused"
    while more:
        message = await receive()
        digest.update(message.get("body", b""))
        more = message.get("more_body", False)
    headers = [(b"content-length", b"64")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": digest.hexdigest().encode()})


@pytest.fixture(scope="module", params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    server = uvicorn.Server(quiet_config(echo, 30, 30))
    loop = request.param()
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve([listener]),))
    thread.start()
    yield int(listener.getsockname()[1])
    server.should_exit = True
    thread.join()
    loop.close()


def answers(port: int, wire: bytes, cuts: list[int], count: int) -> list[str]:
    """Send the bytes in pieces, cut there; the hashes that come back."""
    edges = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send() -> None:
            for start, end in pairwise(edges):
                connection.sendall(wire[start:end])
                time.sleep(0.001)

        sender = threading.Thread(target=send)
        sender.start()
        with connection.makefile("rb") as stream:
            found = []
            for _ in range(count):
                while stream.readline().strip():
                    pass
                found.append(stream.read(64).decode())
        sender.join()
    return found


def test_the_request_that_is_answered_hears_that_its_client_left_though_others_wait_behind_it() -> None:
    async def check() -> list[str]:
        heard: list[str] = []
        left = asyncio.Event()

        async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
            while (await receive())["type"] != "http.disconnect":
                pass
            heard.append(scope["path"])
            left.set()

        config = quiet_config(app, 30, 30)
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: config.http_protocol_class(config=config, server_state=ServerState(), app_state={}),  # type: ignore[call-arg]
            "127.0.0.1",
        )
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.wait_for(left.wait(), 10)
        server.close()
        return heard

    assert asyncio.run(check()) == ["/first"]


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb", b"a\0b"])
def test_a_header_with_a_line_break_is_never_sent(value: bytes) -> None:
    exchange = Exchange(
        scope={"method": "GET", "http_version": "1.1"},  # type: ignore[typeddict-item]
        transport=None,  # type: ignore[arg-type]
        flow=None,  # type: ignore[arg-type]
        logger=logging.getLogger(),
        access_logger=logging.getLogger(),
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )
    message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0"), (b"x", value)]}
    with pytest.raises(RuntimeError, match="line break"):
        asyncio.run(exchange.send(message))


def shared_bytes_left() -> int:
    """What bodies still hold when the server has noticed that its clients are gone."""
    for _ in range(1000):
        if not ArrivingBody.shared_bytes:
            break
        time.sleep(0.01)
    return ArrivingBody.shared_bytes


def wire_of(path: str, body: bytes, chunked: bool) -> bytes:
    if chunked:
        pieces = [body[start : start + 50_000] for start in range(0, len(body), 50_000)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        return f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + framed
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@settings(max_examples=12)
@given(data=st.data())
def test_requests_one_after_another_in_any_pieces(port: int, data: st.DataObject) -> None:
    wire, expected = b"", []
    for _ in range(data.draw(st.integers(1, 3))):
        body = random.Random(data.draw(st.integers(0, 1000))).randbytes(data.draw(SIZES))
        refused = data.draw(st.booleans()) and len(body) < 100_000  # more than fits on the way would be a matter of time
        wire += wire_of("/refused" if refused else "/echo", body, data.draw(st.booleans()))
        expected.append(hashlib.sha256(b"" if refused else body).hexdigest())
    cuts = data.draw(st.lists(st.integers(0, 2**31), max_size=6))
    assert answers(port, wire, cuts, len(expected)) == expected
    assert shared_bytes_left() == 0


def test_many_bodies_at_once_are_bounded(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_body, "_SHARED_BYTES", 3_000_000)
    waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    for connection in waiting:
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\nbeginning")
    body = bytes(300_000)
    assert answers(port, wire_of("/echo", body, False), [], 1) == [hashlib.sha256(body).hexdigest()]
    assert ArrivingBody.shared_bytes <= 3_000_000 + 1_048_576 + 40 * 65_536
    for connection in waiting:
        connection.close()
    assert shared_bytes_left() == 0


def refused(wire: bytes, caplog: pytest.LogCaptureFixture) -> tuple[int, str]:
    """Status and code of what a server of its own answers, and that it is told, counted and logged as every error is."""
    counted: list[str] = []

    async def ask() -> bytes:
        config = quiet_config(echo, 30, 30, refused=counted.append)
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
            "127.0.0.1",
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(wire)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()
        while state.connections:
            await asyncio.sleep(0.001)
        server.close()
        return answer

    with caplog.at_level(logging.INFO, "gaussport.access"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "last_grace_s", 60.0)  # on a busy machine the flood may take longer than a moment
        head, _, body = asyncio.run(ask()).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers, content = dict(line.split(": ", 1) for line in lines), json.loads(body)
    (record,) = [record for record in caplog.records if record.name == "gaussport.access"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert content["request_id"] == headers["x-request-id"]
    assert f"request_id={content['request_id']} client=127.0.0.1 status={status.split()[1]} code={content['code']}" == (
        record.getMessage()
    )
    assert counted == [content["code"]]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["connection"] == "close"
    return int(status.split()[1]), content["code"]


@pytest.mark.parametrize(
    "wire",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2 + b"GARBAGE\r\n\r\n",
    ],
    ids=["garbage", "version", "length", "behind-others"],
)
def test_what_is_not_http_is_an_error_like_all_others(wire: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert refused(wire, caplog) == (400, "malformed_http")


CHUNKED = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
FLOOD = b"a" * (MOST_HEAD_BYTES + 300_000)


@pytest.mark.parametrize(
    "wire",
    [
        b"GET /" + FLOOD,
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + FLOOD,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: aaaaaaaa\r\n" * (len(FLOOD) // 15),
        CHUNKED + b"X-A: " + FLOOD,
    ],
    ids=["path", "line", "lines", "trailer"],
)
def test_a_head_that_does_not_end_is_refused(wire: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert refused(wire, caplog) == (431, "head_too_large")


def test_a_large_head_and_many_small_requests_at_once_pass(port: int) -> None:
    large = b"GET /refused HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * (MOST_HEAD_BYTES - 100) + b"\r\n\r\n"
    many = b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n" * 5000
    small_chunks = CHUNKED.replace(b"5\r\nhello\r\n", b"1;name=value\r\nx\r\n" * 50_000) + b"X-A: b\r\n\r\n"
    nothing, xs = hashlib.sha256().hexdigest(), hashlib.sha256(b"x" * 50_000).hexdigest()
    found = answers(port, large + many + small_chunks + large, [40_000, 150_000], 5003)
    assert found == [*[nothing] * 5001, xs, nothing]
