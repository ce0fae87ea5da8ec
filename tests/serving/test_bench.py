"""`gaussport bench`: what it measures, what it counts, and what it refuses to compare."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gaussport import cli
from gaussport.errors import DataError, ServingError, UsageError
from gaussport.export.bundle.store import open_bundle
from gaussport.serving.bench.document import Document, SessionFigures, Start, changes, read_document
from gaussport.serving.bench.load import Load
from gaussport.serving.bench.machine import Machine, this_machine
from gaussport.serving.bench.rounds import Timing, interleaved, summary
from tests.serving.several import write_several
from tests.serving.texts import write_texts

QUICK = ("--batches", "1", "4", "--rounds", "3", "--seconds", "0.1", "--threads", "1")


@contextmanager
def answering(statuses: list[int], seconds: float = 0.0) -> Iterator[str]:
    """A server that answers one request at a time, each after so many seconds, with these codes in turn; its address."""
    count = iter(range(10**9))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # one request for each connection: with one thread, nobody waits inside the server

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(seconds)
            self._answer(statuses[next(count) % len(statuses)], b'{"model": "fake"}')

        def do_GET(self) -> None:
            self._answer(404, b"")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(HTTPServer):
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def timing(*walls: float) -> Timing:
    return summary(list(walls), list(walls))


def measured(machine: Machine, *walls: float, model: str = "tiny", threads: int = 1) -> Document:
    start = Start(ready_s=1, first_answer_s=1, before_mb=1, loaded_mb=1, peak_mb=1)
    figures = SessionFigures(
        model=model, model_sha256="", provider="cpu", threads=threads, start=start, batches={1: timing(*walls)}
    )
    return Document(machine=machine, sessions=(figures,))


def test_every_size_is_measured_and_written_as_json_page_and_plots(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", str(tiny), *QUICK, "-o", str(tmp_path / "out"), "--json"]) == 0
    document = read_document(tmp_path / "out" / "bench.json")
    assert json.loads(capsys.readouterr().out) == json.loads(document.model_dump_json())
    (figures,) = document.sessions
    assert list(figures.batches) == [1, 4]
    for each in figures.batches.values():
        assert 0 < each.low_ms <= each.wall_ms <= each.high_ms
        assert each.cpu_ms > 0
    start = figures.start
    assert 0 < start.ready_s < start.first_answer_s
    assert 20 < start.before_mb < start.loaded_mb <= start.peak_mb + 1
    assert (tmp_path / "out" / "batches.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "bench.md").read_text()
    assert "| tiny | 4 |" in page
    assert document.machine.processor in page


def test_a_measurement_compares_with_itself(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", str(tiny), *QUICK, "-o", str(tmp_path)]) == 0
    assert cli.main(["bench", str(tiny), *QUICK, "--compare", str(tmp_path / "bench.json")]) == 0
    assert "tiny, batch 4" in capsys.readouterr().out


def test_rounds_take_turns_and_warm_ups_are_not_counted() -> None:
    calls: list[str] = []

    def run(name: str) -> None:
        calls.append(name)
        time.sleep(0.025)  # longer than what would be repeated within a round

    found = interleaved({"a": lambda: run("a"), "b": lambda: run("b")}, rounds=3, warm_up=2)
    assert calls == ["a", "a", "b", "b"] + ["a", "b"] * 3
    assert found["a"].rounds == 3
    assert found["a"].wall_ms >= 25
    assert found["a"].cpu_ms < found["a"].wall_ms  # a sleep is no processor time


def test_the_seconds_end_the_rounds_after_three() -> None:
    assert interleaved({"a": lambda: time.sleep(0.03)}, rounds=50, seconds=0.01)["a"].rounds == 3


def test_median_and_quartiles_are_those_of_the_textbook() -> None:
    found = summary([5.0, 1.0, 2.0, 4.0, 3.0], [1.0, 1.0, 1.0, 9.0, 1.0])
    assert (found.low_ms, found.wall_ms, found.high_ms, found.cpu_ms) == (2.0, 3.0, 4.0, 1.0)
    assert found.spread == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("now", "differs"),
    [((2.0, 2.1, 2.2), True), ((0.5, 0.6, 0.7), True), ((1.0, 1.15, 1.3), False)],
    ids=["slower", "faster", "within the spread"],
)
def test_only_quartiles_that_are_apart_differ(now: tuple[float, ...], differs: bool) -> None:
    machine = this_machine()
    (change,) = changes(measured(machine, 1.0, 1.1, 1.2), measured(machine, *now))
    assert change.differs is differs
    assert change.ratio == pytest.approx(now[1] / 1.1)


@pytest.mark.parametrize(
    "other", [{"processor": "another"}, {"cores": 97}, {"memory_gb": 9000.0}, {"architecture": "riscv64"}], ids=str
)
def test_figures_of_another_machine_are_refused_before_anything_is_measured(
    other: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bench.json"
    path.write_text(measured(this_machine().model_copy(update=other), 1.0).model_dump_json())
    assert cli.main(["bench", "no-such-bundle", "--compare", str(path)]) == 2
    assert "measure both here" in capsys.readouterr().err


def test_measurements_with_nothing_in_common_are_refused() -> None:
    machine = this_machine()
    for other in (measured(machine, 1.0, model="other"), measured(machine, 1.0, threads=2)):
        with pytest.raises(UsageError, match="have no model"):
            changes(other, measured(machine, 1.0))


def test_a_file_of_something_else_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for text in ("{}", "[1]", "no json", '{"schema_version": 2}'):
        (tmp_path / "file").write_text(text)
        with pytest.raises(DataError, match="is not what gaussport bench writes"):
            read_document(tmp_path / "file")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to measure"),
        (("--url", "http://127.0.0.1:1"), "needs pictures"),
        (("BUNDLE", "--images", "a.png"), "are for a server"),
        (("BUNDLE", "--batches", "0"), "--batches is 0 but must be above zero"),
        (("BUNDLE", "--batches", "999"), "was proved up to batch 16"),
        (("BUNDLE", "BUNDLE"), "two bundles are called tiny"),
    ],
    ids=str,
)
def test_wishes_that_cannot_be_are_refused(
    words: tuple[str, ...], message: str, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *(str(tiny) if word == "BUNDLE" else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("write", [write_several, write_texts])
def test_models_that_do_not_read_pictures_alone_are_refused_in_a_sentence(
    write: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write(tmp_path / "bundle")
    assert cli.main(["bench", str(bundle)]) == 2
    error = capsys.readouterr().err
    assert "does not read pictures alone: serve it and measure it with --url" in error
    assert error.startswith(f"gaussport bench: {open_bundle(bundle).manifest.name} does"), "no exception's name"
    assert error.count("\n") == 1


def test_what_a_load_counts_is_what_the_server_counts(
    server: Any, make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]
) -> None:
    def answered() -> float:
        with server.http() as client:
            lines = client.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith("gaussport_images_total") and 'outcome="ok"' in line]
        return sum(float(line.split()[-1]) for line in found)

    load = Load(server.url, [encode(make_picture(seed)) for seed in range(3)])
    before = answered()
    closed, open_ = load.closed(2, 0.3), load.open(50, 0.3)
    assert closed.answered + open_.answered + 2 * 8 == answered() - before  # 8 to warm up, each time
    assert open_.answered == 15
    assert closed.model == open_.model != ""
    for each in (closed, open_):
        assert 0 < each.p50_ms <= each.p90_ms <= each.p99_ms
        assert each.server_cpu_ms is not None


def test_an_open_load_counts_from_when_a_request_was_due() -> None:
    """A server that takes 20 ms for each of 30 requests due within 0.15 s keeps the last ones waiting for 0.4 s."""
    with answering([200], seconds=0.02) as url:
        assert Load(url, [b"picture"]).open(200, 0.15).p99_ms > 300


def test_refusals_are_counted_and_not_timed() -> None:
    with answering([*[200] * 8, 200, 429, 503, 429]) as url:  # the first eight warm up
        found = Load(url, [b"picture"]).open(100, 0.04)
    assert (found.answered, found.refused) == (1, 3)
    assert found.server_cpu_ms is None


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_any_other_answer_ends_the_measurement(kind: str) -> None:
    with answering([200] * 9 + [500]) as url, pytest.raises(ServingError, match="answered 500 to a picture"):
        getattr(Load(url, [b"picture"]), kind)(10, 0.5)


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ServingError, match="cannot be asked"):
        Load("http://127.0.0.1:1", [b"picture"]).closed(1, 0.1)
