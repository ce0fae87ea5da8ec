"""WebSockets in the metrics and in the log: handshakes like any request, messages by outcome, nothing of a client's."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient, WebSocketDenialResponse
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gaussport.serving.app import build_app
from gaussport.serving.errors import STATUS
from gaussport.serving.settings import Settings
from gaussport.serving.streams.registry import Streams
from tests.serving.conftest import Server, running, write_tiny
from tests.serving.texts import write_texts

OWN, ATTACHED = "/v1/streams/socket", "/v1/streams/{stream}/socket"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("bundles") / "texts")


def socket(server: Server, path: str = OWN, **options: Any) -> ClientConnection:
    opened: ClientConnection = connect(f"ws{server.url.removeprefix('http')}{path}", proxy=None, **options)
    return opened


def refused(server: Server, path: str, status: int, **options: Any) -> InvalidStatus:
    with pytest.raises(InvalidStatus) as caught, socket(server, path, **options):
        pass
    assert caught.value.response.status_code == status
    return caught.value


def told(connection: ClientConnection, piece: bytes | str) -> dict[str, Any]:
    connection.send(piece)
    found: dict[str, Any] = json.loads(connection.recv(timeout=20))
    return found


def series(server: Server, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a series by the values of their labels, in the order of the labels' names."""
    with server.http() as http:
        families = text_string_to_metric_families(http.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {tuple(value for _, value in sorted(sample.labels.items())): sample.value for sample in samples}


def until_there_are_no_sockets(server: Server) -> None:
    """The server learns of a client's end a moment after the client."""
    end = time.monotonic() + 20
    while series(server, "gaussport_sockets") != {(): 0}:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_handshakes_and_messages_are_counted_and_logged(bundle: Path) -> None:
    tiny = write_tiny(bundle.parent / "tiny")
    options = ("--log-format", "json", "--log-level", "info")
    with running(bundle, tiny, options=options) as server:
        with server.http() as http, socket(server, f"{OWN}?model=texts", additional_headers={"X-Request-ID": "mine"}) as one:
            assert one.response is not None
            assert one.response.headers["x-request-id"] == "mine"
            stream = told(one, "abc")["stream"]
            told(one, b"de")
            assert told(one, "")["code"] == "empty_text"
            with socket(server, f"/v1/streams/{stream}/socket") as two:
                assert told(two, "f")["tokens"] == 6
                assert series(server, "gaussport_sockets") == {(): 2}
                http.delete(f"/v1/streams/{stream}")
                assert told(two, "g")["code"] == "stream_unknown"
                with pytest.raises(ConnectionClosed):
                    two.recv(timeout=20)
        denied = refused(server, f"{OWN}?model=tiny", 400)
        assert denied.response.headers["x-content-type-options"] == "nosniff"
        assert denied.response.headers["x-request-id"] == json.loads(denied.response.body)["request_id"]
        refused(server, f"{OWN}?model=evil", 404)
        refused(server, "/v1/streams/evil/socket", 404)
        refused(server, OWN, 403, origin="https://evil.example")
        refused(server, "/v1/evil", 403)

        requests = series(server, "gaussport_requests_total")
        sockets = {(route, status): n for (method, route, status), n in requests.items() if "socket" in route}
        expected = {(OWN, "101"): 1, (ATTACHED, "101"): 1, (OWN, "400"): 1, (OWN, "404"): 1, (OWN, "403"): 1}
        assert sockets == {**expected, (ATTACHED, "404"): 1}
        assert requests["GET", "unmatched", "403"] == 1
        assert series(server, "gaussport_socket_messages_total") == {
            ("texts", "ok"): 3,
            ("texts", "empty_text"): 1,
            ("texts", "stream_unknown"): 1,
        }
        assert series(server, "gaussport_rejected_requests_total") == {
            (code,): 1 for code in ("cannot_stream", "unknown_model", "stream_unknown", "forbidden")
        }
        until_there_are_no_sockets(server)
        assert series(server, "gaussport_requests_in_flight") == {(): 1}  # the scrape itself
        server.process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in server.process.communicate(timeout=20)[1].splitlines()]
    access = [line for line in lines if line["logger"] == "gaussport.access" and "socket" in line["route"]]
    assert [line["status"] for line in access] == [101, 101, 400, 404, 404, 403]
    assert (access[0]["request_id"], access[0]["method"], access[0]["route"]) == ("mine", "GET", OWN)
    assert [line.get("code") for line in access[2:]] == ["cannot_stream", "unknown_model", "stream_unknown", "forbidden"]
    assert "evil" not in json.dumps(lines)


def test_a_key_that_is_missing_is_counted(bundle: Path) -> None:
    app = build_app([bundle], Settings(threads=1, api_keys=("k" * 20,)))
    with TestClient(app) as client:
        with pytest.raises(WebSocketDenialResponse) as caught, client.websocket_connect(OWN):
            pass
        assert caught.value.status_code == 401
        text = client.get("/metrics").text
    assert 'gaussport_requests_total{method="GET",route="unmatched",status="401"} 1.0' in text
    assert 'gaussport_rejected_requests_total{code="unauthorized"} 1.0' in text


def test_an_unforeseen_error_says_nothing_but_the_request_id(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a secret")

    monkeypatch.setattr(Streams, "open", broken)
    with TestClient(build_app([bundle], Settings(threads=1))) as client:
        with (
            pytest.raises(WebSocketDenialResponse) as caught,
            client.websocket_connect(OWN, headers={"X-Request-ID": "mine"}),
        ):
            pass
        answer = caught.value
        text = client.get("/metrics").text
    assert answer.status_code == STATUS["internal"]
    assert answer.json() == {"error": "internal error, quote request id mine", "code": "internal", "request_id": "mine"}
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["request mine failed"]
    assert f'gaussport_requests_total{{method="GET",route="{OWN}",status="500"}} 1.0' in text
    assert "gaussport_sockets 0.0" in text
