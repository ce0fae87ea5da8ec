"""A bidirectional classifier of a tokenizer's tokens, exported, with its tokenizer in a zip; narrower precisions."""

import json
from pathlib import Path

import numpy as np
import pytest

from gaussport.cli import main
from gaussport.errors import ConfigurationError, UsageError
from gaussport.export import work
from gaussport.export.bundle.store import open_bundle
from gaussport.export.precision.wish import PrecisionWish
from gaussport.export.progress import unwatched
from gaussport.export.sequence.tokenizer_file import tokenizer_files
from gaussport.models.text import Tokenization
from tests.text_export.conftest import LABELS

Words = tuple[Path, Path]


@pytest.fixture(scope="module")
def exported(words: Words, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By the command, as a zip."""
    out = tmp_path_factory.mktemp("exported") / "words.zip"
    checkpoint, tokenizer = words
    asked = ["--tokenizer", str(tokenizer), "--max-tokens", "8", "--stride", "5", "--long-documents", "truncate"]
    assert main(["export", str(checkpoint), "-o", str(out), "--max-batch", "2", "--labels", str(_labels(out)), *asked]) == 0
    return out


def _labels(beside: Path) -> Path:
    path = beside.with_suffix(".json")
    path.write_text(json.dumps(LABELS))
    return path


def test_the_bundle_brings_its_tokenizer_and_what_was_wished(exported: Path, words: Words) -> None:
    bundle = open_bundle(exported)
    spec = bundle.manifest.tokenization
    assert (spec.kind, spec.file, spec.max_tokens, spec.stride, spec.long_documents) == (
        "tokenizers", "tokenizer.json", 8, 5, "truncate",
    )  # fmt: skip
    assert bundle.read("tokenizer.json") == words[1].read_bytes()
    assert bundle.manifest.stream is None
    assert "step.onnx" not in bundle.manifest.files


def test_it_is_verified_and_explained_with_the_tokenizer_of_the_zip(
    exported: Path, words: Words, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["verify", str(exported), "--checkpoint", str(words[0])]) == 0
    capsysbinary.readouterr()
    (tmp_path / "a.txt").write_text("a long  manual page")
    assert main(["explain", str(exported), str(tmp_path / "a.txt"), "--json", "--head", "0"]) == 0
    (text,) = json.loads(capsysbinary.readouterr().out)["texts"]
    assert text["tokens"] == 4
    (head,) = text["layers"][0]["heads"]
    named = {token["text"] for each in head["components"]["top_tokens"] for token in each}
    assert named == {"a", "long", "manual", "page"}


def test_a_tokenizer_of_another_model_is_refused(words: Words, tmp_path: Path) -> None:
    checkpoint, tokenizer = words
    spec = Tokenization(kind="tokenizers", file="tokenizer.json", vocabulary=5, pad=0, max_tokens=9, stride=3)
    with pytest.raises(ConfigurationError, match="makes 9 tokens and the model knows 5"):
        tokenizer_files(spec, tokenizer, checkpoint)
    with pytest.raises(ConfigurationError, match="makes the token 1 of ordinary text, and that is the model's padding"):
        tokenizer_files(spec.model_copy(update={"vocabulary": 10, "pad": 1}), tokenizer, checkpoint)
    with pytest.raises(UsageError, match=r"tokenizer\.json cannot be read: No such file"):
        tokenizer_files(spec, None, checkpoint)
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(UsageError, match=r"t\.json cannot be read"):
        tokenizer_files(spec, tmp_path / "t.json", checkpoint)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_narrower_precisions_are_made_and_proved(exported: Path, words: Words, tmp_path: Path, precision: str) -> None:
    import onnx

    checkpoint = work.read_any_checkpoint(words[0])
    trained = work.trained_classifier(checkpoint, {"tokenizer.json": words[1].read_bytes()})
    model = onnx.load_model_from_string(open_bundle(exported).read("model.onnx"))
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("a long manual page of many words " * (number + 1))
    wish = PrecisionWish(precision=precision, calibration_data=str(tmp_path) if precision == "int8" else None)
    conversion = work.convert(model, wish, trained.probes, trained.samples, unwatched)
    assert work.precision_of(conversion.model) == precision
    runners = work.sessions(conversion.model.SerializeToString())
    proof = work.prove_runners(trained.module, runners, trained.probes.questions(2), precision)
    proof.require()
    assert np.isfinite(proof.worst.max_abs)


@pytest.mark.parametrize("option", [("--max-tokens", "0"), ("--stride", "9"), ("--max-tokens", "99999999")])
def test_impossible_windows_are_refused_before_the_work(
    words: Words, tmp_path: Path, option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--tokenizer", str(words[1]), "--max-tokens", "8", *option]
    assert main(["export", str(words[0]), "-o", str(tmp_path / "out"), *asked]) == 1
    assert "is impossible" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
