"""The client, blocking and asynchronous: one core, so both are asked the same questions."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gaussport import cli
from gaussport.errors import ServingError
from gaussport.serving.client import AsyncClient, Classified, Client, Options, RefusedError
from gaussport.serving.client.exchange import Send, Wait, exchange

TLS = Path(__file__).parent / "tls"
KEY = "k" * 20
BOTH = pytest.mark.parametrize("classify", ["blocking", "asynchronous"], indirect=True)
Classify = Callable[..., list[Classified]]


@pytest.fixture
def classify(request: pytest.FixtureRequest) -> Classify:
    """Classify pictures with one client or the other: url, pictures, then options of the client."""

    def blocking(url: str, pictures: Any, asked: dict[str, Any] | None = None, **options: Any) -> list[Classified]:
        with Client(url, **options) as client:
            return list(client.classify(pictures, **asked or {}))

    def asynchronous(url: str, pictures: Any, asked: dict[str, Any] | None = None, **options: Any) -> list[Classified]:
        async def ask() -> list[Classified]:
            async with AsyncClient(url, **options) as client:
                return [answer async for answer in client.classify(pictures, **asked or {})]

        return asyncio.run(ask())

    return blocking if request.param == "blocking" else asynchronous


@pytest.fixture
def pngs(make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]) -> list[bytes]:
    return [encode(make_picture(seed)) for seed in range(12)]


@pytest.fixture
def labels(http: httpx.Client, pngs: list[bytes]) -> list[str]:
    """What the server says of each picture, asked one by one without a client of ours."""
    answers = [http.post("/v1/classify", content=png, headers={"content-type": "image/png"}).json() for png in pngs]
    return [answer["results"][0]["predictions"][0]["label"] for answer in answers]


def first_labels(answers: list[Classified]) -> list[str]:
    return [answer.predictions[0]["label"] for answer in answers]


@BOTH
def test_many_pictures_are_answered_in_order(
    server: Any, classify: Classify, pngs: list[bytes], labels: list[str], tmp_path: Path
) -> None:
    pictures: list[Path | bytes] = list(pngs)
    pictures[3] = tmp_path / "3.png"
    (tmp_path / "3.png").write_bytes(pngs[3])
    answers = classify(server.url, pictures, {"top_k": 2, "urgent": True, "version": "1", "timeout_ms": 20_000})
    assert first_labels(answers) == labels
    assert {len(answer.predictions) for answer in answers} == {2}
    assert set(answers[0].timing_ms or {}) == {"queue", "decode", "inference", "total"}


@BOTH
def test_a_bad_picture_is_an_answer_among_the_others(
    server: Any, classify: Classify, pngs: list[bytes], tmp_path: Path
) -> None:
    answers = classify(server.url, [pngs[0], b"no picture", pngs[1][:50], tmp_path / "none.png", pngs[2]])
    assert [answer.code for answer in answers] == [None, "not_an_image", "image_damaged", "unreadable_file", None]
    assert answers[3].error == f"{tmp_path}/none.png cannot be read: No such file or directory"


@BOTH
@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"model": "nobody"}, 404, "unknown_model"),
        ({"version": "9"}, 404, "unknown_version"),
        ({"top_k": 0}, 400, "bad_parameter"),
    ],
)
def test_what_is_not_about_a_picture_raises(
    server: Any, classify: Classify, pngs: list[bytes], asked: dict[str, Any], status: int, code: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        classify(server.url, pngs, asked)
    assert (refused.value.status, refused.value.code) == (status, code)
    assert len(refused.value.request_id) == 32
    assert str(refused.value).startswith(f"{server.url} answered {status}: ")


@BOTH
def test_every_picture_is_answered_by_a_server_that_is_often_full(
    slow: Path, run_server: Callable[..., Any], classify: Classify, pngs: list[bytes]
) -> None:
    with run_server(slow, options=("--queue-size", "2", "--max-batch", "1")) as server:
        answers = classify(server.url, pngs[:6], connections=6)
        assert all(answer.error is None for answer in answers)
        with server.http() as http:
            refused = http.get("/metrics").text
    assert 'gaussport_rejected_requests_total{code="queue_full"}' in refused  # else nothing was shown


@BOTH
def test_keys_and_certificates(
    tiny: Path,
    run_server: Callable[..., Any],
    classify: Classify,
    pngs: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    picture, key = tmp_path / "a.png", tmp_path / "key"
    picture.write_bytes(pngs[0])
    key.write_text(f"# ours\n{KEY}\n")
    certificate = str(TLS / "cert.pem")
    options = ("--tls-cert", certificate, "--tls-key", str(TLS / "key.pem"), "--api-keys-file", str(key))
    with run_server(tiny, options=options) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert len(classify(url, pngs, ca=TLS / "cert.pem", api_key=KEY)) == len(pngs)
        with pytest.raises(RefusedError) as refused:
            classify(url, pngs, ca=TLS / "cert.pem")
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
        with pytest.raises(ServingError, match="certificate"):
            classify(url, pngs, api_key=KEY, connections=1)
        words = ["query", url, str(picture), "--json", "--ca", certificate]
        assert cli.main([*words, "--api-key-file", str(key)]) == 0
        assert cli.main(words) == 1
        monkeypatch.setenv("GAUSSPORT_API_KEY", KEY)
        assert cli.main(words) == 0
        assert KEY not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ca": TLS / "none.pem"}, "none.pem cannot be read as certificates"),
        ({"ca": Path(__file__)}, "cannot be read as certificates"),
        ({"api_key": "a\r\nX-Evil: 1"}, "no header can carry"),
        ({"api_key": "schlüssel"}, "no header can carry"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(options: dict[str, Any], message: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ServingError, match=message):
            kind("http://127.0.0.1:9", **options)


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"\xff\xfe"])
def test_a_file_without_a_key_is_told(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "key").write_bytes(content)
    assert cli.main(["query", "http://127.0.0.1:9", __file__, "--api-key-file", str(tmp_path / "key")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@BOTH
def test_a_server_that_is_being_started_is_waited_for(
    tiny: Path, run_server: Callable[..., Any], classify: Classify, pngs: list[bytes]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answers: list[Classified] = []

    def ask() -> None:
        answers.extend(classify(f"http://127.0.0.1:{port}", pngs, unreachable_s=30))

    asking = threading.Thread(target=ask)
    asking.start()
    with run_server(tiny, options=("--port", str(port))):
        asking.join(30)
    assert [answer.error for answer in answers] == [None] * len(pngs)


@BOTH
def test_a_server_that_is_not_there_is_told_soon(classify: Classify) -> None:
    with pytest.raises(ServingError, match="is the server running there"):
        classify("http://127.0.0.1:9", [b"x"], unreachable_s=0.2)


OK: dict[str, Any] = {"results": [{"predictions": [], "warnings": []}], "timing_ms": {}}


def refused_connection() -> httpx.ConnectError:
    error = httpx.ConnectError("Connection refused")
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    return error


def unknown_host() -> httpx.ConnectError:
    error = httpx.ConnectError("Name or service not known")
    error.__cause__ = socket.gaierror(-2, "Name or service not known")
    return error


def bad_certificate() -> httpx.ConnectError:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError(1, "certificate verify failed")
    return error


def outcomes(*found: Any, **options: Any) -> tuple[int, list[float], Any]:
    """Play these outcomes to one exchange: how often it sent, what it waited, and how it ended."""
    now, sent, waited, left = 0.0, 0, list[float](), list(found)
    steps = exchange(Send("POST", "/"), Options(**options), "http://server", lambda: now)
    outcome: Any = None
    try:
        while True:
            step = steps.send(outcome)
            if isinstance(step, Wait):
                waited.append(step.seconds)
                now += step.seconds
                outcome = None
            else:
                sent += 1
                outcome = left.pop(0) if len(left) > 1 else left[0]
    except StopIteration as end:
        return sent, waited, end.value
    except ServingError as error:
        return sent, waited, error


@pytest.mark.parametrize(
    "outcome",
    [httpx.Response(status) for status in (200, 400, 401, 404, 408, 413, 415, 422, 500, 502, 504)]
    + [
        httpx.ReadTimeout(""),
        httpx.WriteError(""),
        httpx.ReadError(""),
        httpx.RemoteProtocolError(""),
        httpx.ConnectTimeout(""),
    ]
    + [unknown_host(), bad_certificate(), httpx.InvalidURL("")],
    ids=lambda outcome: str(getattr(outcome, "status_code", type(outcome).__name__)),
)
def test_what_may_have_been_begun_or_will_not_pass_is_sent_once(outcome: Any) -> None:
    sent, waited, _ = outcomes(outcome, httpx.Response(200))
    assert (sent, waited) == (1, [])


@pytest.mark.parametrize(
    "outcome", [httpx.Response(429), httpx.Response(503), refused_connection()], ids=["429", "503", "refused"]
)
def test_what_was_certainly_not_begun_is_sent_again(outcome: Any) -> None:
    sent, _, end = outcomes(outcome, outcome, httpx.Response(200))
    assert (sent, end.status_code) == (3, 200)


LOST: list[Any] = [httpx.ReadError(""), httpx.WriteError(""), httpx.RemoteProtocolError("")]
LOST += [httpx.Response(status, text="Internal Server Error") for status in (500, 502, 504)]


@pytest.mark.parametrize("outcome", LOST, ids=lambda each: str(getattr(each, "status_code", type(each).__name__)))
def test_what_a_lost_server_had_is_sent_again_if_that_is_wanted(outcome: Any) -> None:
    sent, _, end = outcomes(outcome, outcome, httpx.Response(200), resend=2)
    assert (sent, end.status_code) == (3, 200)
    assert outcomes(outcome, outcome, httpx.Response(200), resend=1)[0] == 2


@pytest.mark.parametrize("status", [500, 504])
def test_an_answer_of_the_server_itself_is_not_a_loss(status: int) -> None:
    own = httpx.Response(status, json={"error": "…", "code": "internal", "request_id": "1"})
    assert outcomes(own, httpx.Response(200), resend=2)[0] == 1


@settings(max_examples=60)
@given(
    asked=st.one_of(
        st.none(), st.floats().map(str), st.integers(-5, 10**9).map(str), st.text("0123456789eE.-+ naif", max_size=6)
    ),
    status=st.sampled_from([429, 503]),
    patience_s=st.floats(0, 200),
)
def test_waiting_has_bounds_whatever_the_server_asks(asked: str | None, status: int, patience_s: float) -> None:
    response = httpx.Response(status, headers={} if asked is None else {"Retry-After": asked})
    sent, waited, end = outcomes(response, patience_s=patience_s)
    assert end is response
    assert sum(waited) <= patience_s
    assert all(0.05 <= seconds <= 60 for seconds in waited)
    assert sent == len(waited) + 1


def test_refused_connections_are_tried_at_growing_distances() -> None:
    _, waited, end = outcomes(refused_connection(), unreachable_s=10)
    assert isinstance(end, ServingError)
    assert sum(waited) <= 10
    assert len(waited) < 12
    assert waited[0] < 0.2 < 1 < waited[-1]


def counted(pictures: int) -> tuple[Iterator[bytes], list[int]]:
    taken: list[int] = []

    def source() -> Iterator[bytes]:
        for index in range(pictures):
            taken.append(index)
            yield b"x"

    return source(), taken


def test_pictures_are_read_only_a_little_ahead() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=OK))
    source, taken = counted(1000)
    with Client("http://server", connections=2, transport=transport) as client:
        answers = client.classify(source)
        for _ in range(10):
            next(answers)
        assert len(taken) <= 20
        answers.close()  # type: ignore[attr-defined]


def test_leaving_early_ends_what_is_under_way() -> None:
    begun, ended = [], []

    async def slow(request: httpx.Request) -> httpx.Response:
        begun.append(1)
        if len(begun) > 1:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(1)
        return httpx.Response(200, json=OK)

    async def ask() -> int:
        source, taken = counted(1000)
        async with AsyncClient("http://server", connections=3, transport=httpx.MockTransport(slow)) as client:
            answers = client.classify(source)
            await anext(answers)
            await asyncio.sleep(0.05)
            await answers.aclose()  # type: ignore[attr-defined]
        return len(taken)

    began = time.monotonic()
    assert asyncio.run(ask()) <= 4
    assert len(ended) == len(begun) - 1 > 0
    assert time.monotonic() - began < 50


def test_a_bar_changes_nothing(server: Any, pngs: list[bytes], labels: list[str]) -> None:
    with Client(server.url) as client:
        assert first_labels(list(client.classify(iter(pngs), progress=True))) == labels


def test_both_say_what_is_served(server: Any) -> None:
    async def ask() -> Any:
        async with AsyncClient(server.url) as client:
            return await client.models()

    with Client(server.url) as client:
        assert client.models() == asyncio.run(ask())
        assert client.models()[0]["name"] == "tiny"
