"""`gaussport explain`: what it writes, and what it refuses before it works."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gaussport.cli import main
from gaussport.export.bundle.store import Bundle

Bundles = Callable[[str], Bundle]
SMALL = ["--layer", "0", "--head", "1", "--threads", "1"]


def test_a_folder_gets_figures_and_a_page_that_needs_nothing_else(bundles: Bundles, digit: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["explain", str(bundles("mnist-gma").path), str(digit), "-o", str(out), *SMALL]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["0-stroke-heads.png", "0-stroke-layers.png", "index.html"]
    with Image.open(out / "0-stroke-heads.png") as figure:
        assert np.asarray(figure.convert("L")).std() > 10
    text = (out / "index.html").read_text()
    assert text.count('src="data:image/png;base64,') == text.count(" alt=") == 2
    assert "http" not in text
    assert "effective rank" in text


@pytest.mark.parametrize("name", ["mnist-ssog", "mnist-gma"])
def test_one_figure_is_the_same_every_time(bundles: Bundles, digit: Path, tmp_path: Path, name: str) -> None:
    for out in ("one.svg", "two.svg"):
        words = ["explain", str(bundles(name).path), str(digit), "-o", str(tmp_path / out), "--cell", "0,6"]
        assert main([*words, *SMALL]) == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_json_has_the_numbers_of_all_pictures_and_of_the_folder(
    bundles: Bundles, digit: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for label in ("a", "b"):
        (tmp_path / "data" / label).mkdir(parents=True)
        shutil.copy(digit, tmp_path / "data" / label)
    (tmp_path / "data" / "b" / "zebra.png").write_bytes(b"no picture")
    words = ["explain", str(bundles("mnist-gma").path), str(tmp_path / "data"), "--json", "--tokens"]
    assert main([*words, *SMALL]) == 1
    answer = json.loads(capsysbinary.readouterr().out)
    good, _, bad = answer["pictures"]
    assert bad["error"]["code"] == "not_an_image"
    (layer,) = good["layers"]
    (head,) = layer["heads"]
    assert (layer["name"], layer["cell"], head["head"]) == ("blocks.0.attn", [3, 3], 1)
    keys = np.array(head["tokens"]["responsibility"]["key"]).reshape(49, -1)
    queries = np.array(head["tokens"]["responsibility"]["query"]).reshape(49, -1)
    row = keys @ queries[24] / (keys.sum(0) @ queries[24] + 1e-6)
    np.testing.assert_allclose(np.ravel(head["query"]["row"]), row, atol=1e-6)  # Z is float32
    (over_all,) = answer["folder"]["heads"]
    assert over_all["label_overlap_nmi"] == pytest.approx(0, abs=1e-9)  # the same picture under both labels tells nothing
    np.testing.assert_allclose(over_all["usage"], keys.mean(0), atol=1e-9)


@pytest.mark.parametrize(
    ("words", "code", "fault"),
    [
        ([], 2, "say where the figures go with -o OUT, or ask for the numbers with --json"),
        (["-o", "{tmp}/a/b"], 2, "the folder {tmp}/a does not exist"),
        (["-o", "{tmp}/stroke.png/x"], 2, "the folder {tmp}/stroke.png does not exist"),
        (["--json", "--layer", "9"], 2, "there is no layer '9'"),
        (["--json", "--head", "-1"], 2, "blocks.0.attn has no head -1: choose from 0 to 3"),
        (["--json", "--cell", "x"], 2, "the cell is not ROW,COLUMN"),
        (["--json", "--pictures", "0"], 2, "--pictures is 0: give at least 1"),
    ],
)
def test_refusals(
    bundles: Bundles,
    digit: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    fault: str,
) -> None:
    before = sorted(tmp_path.iterdir())
    given = [word.format(tmp=tmp_path) for word in words]
    assert main(["explain", str(bundles("mnist-gma").path), str(digit), *given]) == code
    error = capsys.readouterr().err
    assert fault.format(tmp=tmp_path) in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_one_figure_takes_one_picture(
    bundles: Bundles, digit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(bundles("mnist-gma").path), *[str(digit)] * 2, "-o", str(tmp_path / "out.svg")]) == 2
    assert "is one figure and there are 2 pictures: give a folder or an .html page" in capsys.readouterr().err


def test_without_matplotlib_it_says_what_to_install_and_still_has_the_numbers(
    bundles: Bundles, digit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["explain", str(bundles("mnist-gma").path), str(digit), *SMALL]
    assert main([*words, "-o", str(tmp_path / "out")]) == 1
    assert "figures need matplotlib: install gaussport[explain], or ask for the numbers as JSON" in capsys.readouterr().err
    assert main([*words, "--json"]) == 0


def test_an_unreadable_picture_leaves_no_figure(
    bundles: Bundles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    assert main(["explain", str(bundles("mnist-gma").path), str(broken), "-o", str(tmp_path / "out.png"), *SMALL]) == 1
    assert "are not a picture" in capsys.readouterr().err
    assert not (tmp_path / "out.png").exists()
