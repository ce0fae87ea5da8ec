"""The text bundle in other runtimes: TensorRT's profile over length, Triton's configuration, what inspect says of it."""

import json
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from gaussport.cli import main
from gaussport.export.bundle.store import Bundle, open_bundle
from tests.text_export.conftest import LONGEST, MAX_BATCH, TRAINED

Said = pytest.CaptureFixture[str]


@pytest.mark.skipif(find_spec("tensorrt_rtx") is None, reason="TensorRT-RTX is not installed: pip install 'gaussport[rtx]'")
def test_an_engine_takes_every_length_of_its_profile(bundle: Bundle, tmp_path: Path, capsys: Said) -> None:
    copied = Path(shutil.copytree(bundle.path, tmp_path / "copied"))
    words = ["build-engine", str(copied), "--builder", "tensorrt-rtx", "--arch", "sm_86", "--without-plugins"]
    assert main([*words, "--max-length", "100"]) == 0
    (engine,) = open_bundle(copied).manifest.engines.values()
    assert (engine.batches, engine.lengths) == ((1, MAX_BATCH, MAX_BATCH), (1, TRAINED, 100))
    capsys.readouterr()
    assert main(["inspect", str(copied)]) == 0
    assert "of 1 to 100 tokens" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "our plugins are compiled for one length"),
        (["--max-length", str(LONGEST + 1)], f"more than the {LONGEST} tokens that the bundle was proved with"),
        (["--min-length", "9", "--opt-length", "8"], "must be at least 1 and not descend"),
        (["--min-length", "0"], "must be at least 1 and not descend"),
    ],
)
def test_impossible_lengths_are_refused(bundle: Bundle, words: list[str], fault: str, capsys: Said) -> None:
    assert main(["build-engine", str(bundle.path), "--builder", "tensorrt-rtx", "--arch", "sm_86", *words]) == 2
    assert fault in capsys.readouterr().err


def test_triton_takes_rows_of_tokens_of_any_length(bundle: Bundle, tmp_path: Path, capsys: Said) -> None:
    assert main(["triton-repository", str(bundle.path), "-o", str(tmp_path)]) == 2
    assert "use --backend onnxruntime, and let clients send the tokens" in capsys.readouterr().err
    assert main(["triton-repository", str(bundle.path), "-o", str(tmp_path), "--backend", "onnxruntime"]) == 0
    text = (tmp_path / bundle.manifest.name / "config.pbtxt").read_text()
    assert '{ name: "tokens" data_type: TYPE_INT64 dims: [ -1 ] }' in text
    assert (tmp_path / bundle.manifest.name / "1" / "model.onnx").read_bytes() == bundle.read("model.onnx")


def test_inspect_says_what_it_reads_and_what_a_stream_keeps(bundle: Bundle, capsys: Said) -> None:
    assert main(["inspect", str(bundle.path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"up to {LONGEST} tokens at once, longer ones in windows that begin every {LONGEST // 2} tokens" in said
    assert bundle.manifest.stream is not None
    assert f"{bundle.manifest.stream.bytes_per_stream:,} bytes each" in said
    assert main(["inspect", str(bundle.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["preprocessing"]["kind"] == "bytes"


@pytest.mark.parametrize("option", [("--mean", "1"), ("--input-size", "1"), ("--reduced-decoding", ".")])
def test_what_is_for_pictures_is_refused(
    checkpoint: Path, tmp_path: Path, option: tuple[str, str], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("gaussport.export.work.export_onnx")  # refused before the work
    assert main(["export", str(checkpoint), "-o", str(tmp_path / "out"), *option]) == 2
    assert re.search("leave out what is said about pictures|of pictures: leave it out", capsys.readouterr().err)


def test_what_is_for_text_is_refused_of_pictures(
    tmp_path: Path, capsys: Said, picture_checkpoint: Callable[[], Path]
) -> None:
    assert main(["export", str(picture_checkpoint()), "-o", str(tmp_path / "out"), "--max-tokens", "9"]) != 0
    assert "leave out what is said about text" in capsys.readouterr().err


@pytest.fixture
def picture_checkpoint() -> Callable[[], Path]:
    from gaussport.models import zoo

    return lambda: Path(zoo.__file__).with_name("mnist-gma.safetensors")
