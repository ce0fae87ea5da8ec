"""`gaussport explain` of texts: its numbers are those of the module's responsibilities, its page escapes what it shows."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gaussport.cli import main
from gaussport.export.bundle.store import Bundle
from gaussport.export.explanation.in_pytorch import explained_in_pytorch
from gaussport.models.sequence import SequenceClassifier
from gaussport.models.text import Tokenization, encode, pieces, windows
from gaussport.serving.explain.text.components import BINS


@pytest.fixture
def paths(tmp_path: Path) -> Sequence[Path]:
    """One text of a window, one of several, one that is none."""
    (tmp_path / "short.txt").write_bytes("naïve <b>café</b> \x00\n".encode() + b"\xff")
    (tmp_path / "long.txt").write_bytes(bytes(np.random.default_rng(0).integers(97, 105, 333, np.uint8)))
    (tmp_path / "none.txt").touch()
    return [tmp_path / name for name in ("short.txt", "long.txt", "none.txt")]


def test_numbers_are_those_of_the_module(
    bundle: Bundle, module: SequenceClassifier, paths: Sequence[Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    import torch

    assert main(["explain", str(bundle.path), *map(str, paths), "--json", "--head", "1"]) == 1
    answer = json.loads(capsysbinary.readouterr().out)
    short, long, none = answer["texts"]
    assert none["error"]["code"] == "empty_text"
    assert (short["windows"], long["windows"], long["tokens"]) == (1, 5, 333)
    assert sum(p["probability"] for p in long["predictions"]) == pytest.approx(1)
    spec = bundle.manifest.tokenization
    for path, found in zip(paths, (short, long), strict=False):
        tokens = encode(path.read_bytes(), spec)
        key = _keys(module, tokens, spec, torch.from_numpy)
        components = found["layers"][0]["heads"][0]["components"]
        np.testing.assert_allclose(components["usage"], key.mean(0), atol=1e-5)
        best = int(np.argmax(components["usage"]))
        top = components["top_tokens"][best][0]
        taken = np.zeros(257)
        np.add.at(taken, tokens, key[:, best])
        assert top["token"] == int(taken.argmax())
        assert top["share"] == pytest.approx(taken.max() / key[:, best].sum(), abs=1e-5)
        passage = components["passages"][best][0]
        assert passage["share"] == pytest.approx(key[:, best].max(), abs=1e-5)
        np.testing.assert_allclose(np.sum(components["writes"], 1), 1, atol=1e-6)
        place = np.bincount(np.arange(len(tokens)) * BINS // len(tokens), key[:, best], BINS)
        np.testing.assert_allclose(components["writes"][best], place / place.sum(), atol=1e-5)
    assert answer["over_all"]["texts"] == 3


def _keys(module: SequenceClassifier, tokens: np.ndarray, spec: Tokenization, tensor: object) -> np.ndarray:
    """Γ_K [N, K] of head 1, each token from the first window that has it."""
    parts, covered = [], 0
    for number, row in enumerate(windows(tokens, spec)):
        (layer,) = explained_in_pytorch(module, [tensor(row[np.newaxis])])  # type: ignore[operator]
        parts.append(layer["key_responsibility"][0, covered - number * spec.stride :, 1])
        covered = number * spec.stride + len(row)
    return np.concatenate(parts)


def test_the_page_needs_nothing_else_and_runs_nothing_of_the_text(
    bundle: Bundle, paths: Sequence[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evil.txt").write_text("<script>alert(1)</script>&amp;")
    assert main(["explain", str(bundle.path), str(tmp_path / "evil.txt"), str(paths[0]), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "http" not in text
    assert 'class="text"' in text
    assert "component" in text
    assert "\\xff" in text
    assert "2 of 2 texts explained" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["-o", "a.png"], "a text is drawn as a page"),
        (["--json", "--cell", "0,0"], "--cell and --tokens are for pictures"),
        (["--json", "--layer", "nine"], "there is no layer 'nine'"),
        (["-o", "nowhere/a.html"], "does not exist, make it first"),
    ],
)
def test_what_cannot_be_is_refused(
    bundle: Bundle, paths: Sequence[Path], words: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(bundle.path), str(paths[0]), *words]) == 2
    assert fault in capsys.readouterr().err


def test_each_byte_has_its_piece() -> None:
    spec = Tokenization.of_bytes(8)
    assert pieces("aé\x00", spec) == ["a", "é", "", "\x00"]
    assert pieces(b"\xc3(\xff", spec) == ["\\xc3", "(", "\\xff"]
