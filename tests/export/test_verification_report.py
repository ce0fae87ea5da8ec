"""What `gaussport verify --report` writes: one document in three forms, complete, safe and outside the bundle."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from PIL import Image

from gaussport.cli import main
from gaussport.export.bundle.manifest import Manifest
from gaussport.export.bundle.store import Bundle

Mutant = Callable[..., Path]


@pytest.fixture
def pictures(tmp_path: Path) -> str:
    """Two pictures of each of three classes; one of them is damaged."""
    random = np.random.default_rng(0)
    for label in ("kind 0", "kind 1", "kind 2"):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for number in range(2):
            levels = random.integers(0, 256, (24, 40, 3), dtype=np.uint8)
            Image.fromarray(levels).save(tmp_path / "pictures" / label / f"{number}.png")
    (tmp_path / "pictures" / "kind 2" / "1.png").write_bytes(b"no picture")
    return str(tmp_path / "pictures")


def _other_head(model: onnx.ModelProto) -> None:
    """Answers change: the classes are told in reverse order."""
    for name, axis in (("head.weight", 0), ("head.bias", 0)):
        tensor = next(t for t in model.graph.initializer if t.name == name)
        tensor.CopyFrom(numpy_helper.from_array(np.flip(numpy_helper.to_array(tensor), axis).copy(), name))


class _Page(HTMLParser):
    """Checks that tags close in order, and collects what the page refers to."""

    VOID = frozenset({"meta", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _report(folder: Path) -> tuple[dict[str, Any], str, _Page]:
    page = _Page()
    text = (folder / "verification.html").read_text()
    page.feed(text)
    page.close()
    assert page.open == []
    assert not re.search(r"https?:|@import|url\(", text)
    document = json.loads((folder / "verification.json").read_text(), parse_constant=pytest.fail)
    return document, (folder / "verification.md").read_text(), page


def test_a_good_bundle(
    bundle: Bundle, checkpoint_path: Path, tmp_path: Path, pictures: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "report"
    command = ["verify", str(bundle.path), "--checkpoint", str(checkpoint_path), "--data", pictures]
    assert main([*command, "--report", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert re.search(r"ok +data .* of 5 pictures .*, PyTorch .*; 0 answers changed, 1 pictures cannot be read", out)
    document, text, page = _report(folder)
    assert document["ok"]
    assert document["data"]["unreadable"] == ["kind 2/1.png"]
    assert document["data"]["agreement"] == 1.0
    for name, subjects in (("inlined", {"inlined"}), ("pytorch", {"as written", "inlined"})):
        proof = document["proofs"][name]
        assert set(proof["histograms"]) == subjects
        logits = sum(c["batch"] for c in proof["comparisons"]) * 10
        assert sum(sum(h["counts"]) + h["zeros"] + h["lost"] for h in proof["histograms"].values()) == logits
    assert text.startswith(r"# tiny.v1: verified")
    assert "## Beside PyTorch" in text
    assert page.links == []
    assert not (folder / "changed.png").exists()


def test_a_wrong_model_and_the_pictures_whose_answer_changed(
    mutant: Mutant, checkpoint_path: Path, tmp_path: Path, pictures: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = tmp_path / "report", mutant(_other_head)
    command = ["verify", str(path), "--checkpoint", str(checkpoint_path), "--data", pictures, "--report", str(folder)]
    assert main(command) == 1
    assert "FAILED   layer" in capsys.readouterr().out
    document, text, page = _report(folder)
    assert not document["ok"]
    changed = document["data"]["changed"]
    assert len(changed) == sum(pair["pictures"] for pair in document["data"]["confusion"]) > 0
    with Image.open(folder / "changed.png") as sheet:
        assert sheet.format == "PNG"
    (link,) = page.links
    assert link.startswith("data:image/png;base64,")
    assert "svg" in page.seen
    assert "(changed.png)" in text
    assert main(["verify", str(path), "--report", str(folder)]) == 0  # without a reference nothing is wrong
    assert not (folder / "changed.png").exists()


def test_a_bundle_against_another(mutant: Mutant, bundle: Bundle, pictures: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(bundle.path), "--against", str(bundle.path), "--data", pictures, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["data"]["reference"] == str(bundle.path)
    assert document["proofs"]["against"]["reference"] == str(bundle.path)
    path = mutant(_other_head)
    assert main(["verify", str(path), "--against", str(bundle.path), "--max-drop", "100", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [f["check"] for f in document["findings"] if f["result"] == "FAILED"] == ["against"]


def test_labels_and_names_are_shown_as_they_are(
    mutant: Mutant, bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "<script>|`*[x]"

    def relabel(manifest: Manifest) -> Manifest:
        return manifest.model_copy(update={"labels": (evil, *manifest.labels[1:])})

    folder, path = tmp_path / "pictures" / evil, mutant(manifest=relabel)
    folder.mkdir(parents=True)
    Image.new("RGB", (40, 24), "red").save(folder / "é <b>.png")
    assert main(["verify", str(path), "--data", str(folder.parent), "--report", str(tmp_path / "report")]) == 0
    document, text, page = _report(tmp_path / "report")
    assert document["data"]["classes"][0]["label"] == evil
    assert "script" not in page.seen
    assert r"\<script\>\|\`\*\[x\]" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--report", "BUNDLE"], "inside the bundle"),
        (["--report", "BUNDLE/report"], "inside the bundle"),
        (["--report", "file"], "is no folder"),
        (["--report", "no/where"], "the folder no does not exist"),
        (["--data", "nothing"], "'nothing', which is no folder"),
        (["--max-drop", "101"], "from 0 to 100"),
        (["--max-drop", "nan"], "from 0 to 100"),
        (["--against", "BUNDLE", "--checkpoint", "x.pt"], "not both"),
        (["--config", "x.json"], "give it with --checkpoint"),
    ],
)
def test_wishes_that_cannot_be_are_refused_before_the_work(
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    filled = [option.replace("BUNDLE", str(bundle.path)) for option in options]
    assert main(["verify", str(bundle.path), *filled]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_pictures_of_unknown_classes_fail_by_name(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pictures" / "unicorn").mkdir(parents=True)
    Image.new("RGB", (40, 24)).save(tmp_path / "pictures" / "unicorn" / "1.png")
    assert main(["verify", str(bundle.path), "--data", str(tmp_path / "pictures")]) == 1
    assert re.search(r"FAILED +data .*'unicorn', which is none of the model's labels", capsys.readouterr().out)
