"""`gaussport classify -o`: whatever ends it, taking it up again leaves one answer for each picture."""

import csv
import fcntl
import json
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gaussport.cli import main
from tests.offline.conftest import CLASSIFY, COUNT, classify

parquet = pytest.importorskip("pyarrow.parquet", reason="install gaussport[parquet]")

SIZE = 4


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted(folder.glob("part-*.jsonl")) for line in part.read_text().splitlines()]


def answers(bundle: Path, pictures: Path) -> list[dict[str, Any]]:
    """What the command says on the screen."""
    said: list[dict[str, Any]] = json.loads(classify(bundle, pictures, "--json").stdout)
    return said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_job_that_was_killed_answers_each_picture_once(
    slow: Path, pictures: Path, tmp_path: Path, how: signal.Signals
) -> None:
    out = tmp_path / "out"
    words = [slow, pictures, "-o", out, "--part-size", SIZE]
    process = subprocess.Popen(
        [*CLASSIFY, *map(str, words), "--threads", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while len(list(out.glob("part-*"))) < 3 and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(how)
    process.wait()
    left = {part.name: part.stat() for part in out.glob("part-*")}
    assert 3 <= len(left) < COUNT // SIZE, "it was not killed in the middle: the test proves nothing"

    taken_up = classify(*map(str, words))
    assert taken_up.returncode == 0, taken_up.stderr
    assert f"{len(left) * SIZE:,} of them were there already; 1 cannot be used" in taken_up.stdout
    for name, stat in left.items():
        assert (out / name).stat().st_ino == stat.st_ino, "what was done is not done again"
    found = rows(out)
    assert [row["image"] for row in found] == [str(path) for path in sorted(pictures.iterdir())]
    assert [same(row) for row in found] == [same(row) for row in answers(slow, pictures)]
    assert [row["image"] for row in found if "error" in row] == [str(pictures / "050.png")]
    assert json.loads((out / "summary.json").read_text())["pictures"] == COUNT
    assert not list(out.glob(".*.*")), "a draft is left over"


def same(row: dict[str, Any]) -> Any:
    """A row without what rounding may change between batches."""
    return [each["label"] for each in row["predictions"]] if "predictions" in row else row["error"]


def test_a_job_that_is_done_does_nothing(tiny: Path, pictures: Path, tmp_path: Path) -> None:
    words = [tiny, pictures, "-o", tmp_path / "out", "--json"]
    first, second = (json.loads(classify(*map(str, words)).stdout) for _ in range(2))
    assert (first["pictures"], first["classified"], second["classified"]) == (COUNT, COUNT, 0)
    assert first | {"seconds": 0, "classified": 0} == second | {"seconds": 0}


def test_new_pictures_are_another_job(tiny: Path, pictures: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "pictures", tmp_path / "out"
    folder.mkdir()
    for name in ("000.png", "001.png"):
        (folder / name).write_bytes((pictures / name).read_bytes())
    classify(tiny, folder, "-o", out)
    (folder / "000.png").unlink()
    (folder / "002.png").write_bytes((pictures / "002.png").read_bytes())
    (out / "part-00000.jsonl").unlink()
    classify(tiny, folder, "-o", out)
    assert [Path(row["image"]).name for row in rows(out)] == ["000.png", "001.png"]
    assert rows(out)[0]["error"]["code"] == "unreadable_file"


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_every_format_says_the_same(tiny: Path, pictures: Path, tmp_path: Path, format: str) -> None:
    words = ["-o", str(tmp_path / "out"), "--part-size", "50", "--format", format]
    for _ in range(2):  # the second time it is counted
        assert "1 cannot be used" in classify(tiny, pictures, *words).stdout
    if format == "csv":
        texts = [part.read_text().splitlines() for part in sorted(tmp_path.glob("out/part-*.csv"))]
        found = [row for lines in texts for row in csv.DictReader(lines)]
    else:
        found = parquet.read_table(sorted(tmp_path.glob("out/part-*.parquet"))).to_pylist()
    for row, said in zip(found, answers(tiny, pictures), strict=True):
        assert row["image"] == said["image"]
        if "error" in said:
            assert row["code"] == said["error"]["code"]
        else:
            assert (row["label"], int(row["index"])) == (said["predictions"][0]["label"], said["predictions"][0]["index"])
            assert float(row["probability"]) == pytest.approx(said["predictions"][0]["probability"], abs=1e-6)


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    code = main(["classify", *map(str, words)])
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1, said
    return code, said


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (["--top-k", "2"], "top k"),
        (["--part-size", "9"], "part size"),
        (["--format", "csv"], "format"),
        (["--name-column", "x"], "columns"),
    ],
)
def test_a_folder_holds_one_job(
    tiny: Path, pictures: Path, tmp_path: Path, change: Sequence[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["classify", str(tiny), str(pictures / "000.png"), "-o", str(tmp_path / "out")])
    code, said = refused(capsys, tiny, pictures / "000.png", "-o", tmp_path / "out", *change)
    assert (code, f"another {what}" in said) == (2, True), said


def test_what_cannot_be_is_one_sentence(
    tiny: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, out = pictures / "000.png", tmp_path / "out"
    assert refused(capsys, tiny, tmp_path / "none", "-o", out)[0] == 2
    (tmp_path / "empty").mkdir()
    assert refused(capsys, tiny, tmp_path / "empty", "-o", out)[0] == 2
    assert refused(capsys, tiny, one, "-o", out, "--part-size", "0")[0] == 2
    assert "holds something else" in refused(capsys, tiny, one, "-o", pictures)[1]
    assert refused(capsys, tiny, one, "-o", one)[0] == 1
    assert "-o" in refused(capsys, tiny, one, "--engine", "ray")[1]
    assert main(["classify", str(tiny), str(one), "-o", str(out)]) == 0
    capsys.readouterr()
    (out / "part-00000.jsonl").write_text("{")
    code, said = refused(capsys, tiny, one, "-o", out)
    assert (code, "delete it" in said) == (1, True)


def test_two_processes_do_not_write_to_one_folder(
    tiny: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, said = refused(capsys, tiny, pictures, "-o", tmp_path / "out")
    assert (code, "another process" in said) == (2, True)


def test_a_folder_that_may_not_be_written_to(tiny: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, tiny, pictures / "000.png", "-o", "/proc/gaussport")
    assert (code, "cannot be written" in said) == (1, True)
