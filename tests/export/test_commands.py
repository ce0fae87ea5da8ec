"""The commands as users meet them: exit codes, one line for each error, JSON that a machine can read."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gaussport.cli import main
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.verification.checks import CHECKS


@pytest.mark.usefixtures("traced_once")
def test_export_says_what_it_wrote(checkpoint_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    destination = tmp_path / "tiny [bold]"
    assert main(["export", str(checkpoint_path), "-o", str(destination), "--max-batch", "3"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert str(destination) in out
    assert "equals PyTorch at batch 1, 2, 3, 7: off by" in out
    assert f"gaussport serve {destination}" in out
    assert open_bundle(destination).manifest.max_batch == 3


@pytest.mark.usefixtures("traced_once")
def test_export_speaks_json(checkpoint_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(checkpoint_path), "-o", str(tmp_path / "tiny"), "--max-batch", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["manifest"]["family"] == "ssog"
    assert document["report"]["tolerance"]["precision"] == "fp32"
    assert main(["export", str(checkpoint_path), "-o", str(tmp_path / "tiny"), "--max-batch", "2", "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--opset", "9"], 2, "choose one from 18 to 25"),
        (["--opset", "99"], 2, "choose one from 18 to 25"),
        (["--max-batch", "0"], 2, "from 1 to 1024"),
        (["--name", "a/b"], 2, "cannot be used in URLs"),
        (["--labels", "nothing.txt"], 2, "the labels file nothing.txt cannot be read"),
        (["--config", "nothing.json"], 1, "nothing.json"),
    ],
)
def test_export_refuses_with_one_line(
    checkpoint_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, words: str
) -> None:
    assert main(["export", str(checkpoint_path), "-o", str(tmp_path / "tiny"), *options]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gaussport export: ")
    assert err.count("\n") == 1
    assert words in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [["--opset", "abc"], ["--max-batch", "many"], ["--surprise"], ["-o"]])
def test_export_refuses_what_is_no_option(
    checkpoint_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["export", str(checkpoint_path), "-o", "tiny", *options])
    assert caught.value.code == 2
    assert options[0] in capsys.readouterr().err


def test_a_destination_may_begin_with_a_hyphen(
    checkpoint_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traced_once: None
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(checkpoint_path, "-tiny.safetensors")
    assert main(["export", "--output=-x.bundle", "--max-batch", "1", "--", "-tiny.safetensors"]) == 0
    assert open_bundle(Path("-x.bundle")).manifest.name == "tiny"


def test_verify_prints_a_line_for_each_check(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(bundle.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["files", *(check.name for check in CHECKS)]
    assert all(line.startswith("ok ") for line in lines)


def test_verify_ends_with_1_when_a_check_fails(bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(shutil.copytree(bundle.path, tmp_path / "tiny"))
    report = (path / "report.json").read_bytes()
    (path / "report.json").write_bytes(report.replace(b"fp32", b"fp16"))
    assert main(["verify", str(path)]) == 1
    assert capsys.readouterr().out.startswith("FAILED   files      report.json")
    assert main(["verify", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["findings"][0]["result"]) == (False, "FAILED")


@pytest.mark.parametrize("command", ["verify", "inspect"])
@pytest.mark.parametrize("path", ["nothing", ".", "/dev/zero"])
def test_what_is_no_bundle_is_refused_with_one_line(
    command: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, path]) in (1, 2)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert path in err


def test_inspect_describes_a_bundle(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(bundle.path)]) == 0
    out = capsys.readouterr().out
    for word in ("tiny.v1", "ssog", "pixels float32 [batch, 3, 24, 40]", "10: kind 0", "held_out_accuracy 0.75"):
        assert word in out
    assert main(["inspect", str(bundle.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == bundle.manifest.model_dump(mode="json")


def test_inspect_describes_a_checkpoint(checkpoint_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(checkpoint_path)]) == 0
    out = capsys.readouterr().out
    for word in ("checkpoint", "ssog", "parameters", "10: kind 0"):
        assert word in out
    assert main(["inspect", str(checkpoint_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["parameters"]["blocks.0.attn.mu"] == [2, 4, 2]
    assert document["metrics"] == {"held_out_accuracy": 0.75}


def test_refusals_come_before_torch(checkpoint_path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "gaussport", "export", str(checkpoint_path), "-o", "no/where"]
    start = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the folder no does not exist" in done.stderr.splitlines()[-1]
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert imported.isdisjoint({"torch", "onnx", "onnxruntime"})
    assert time.monotonic() - start < 20  # seconds; about 0.4 on a quiet machine


def test_inspecting_a_bundle_imports_neither_torch_nor_onnx(bundle: Bundle) -> None:
    script = (
        "import sys; from gaussport.cli import main; code = main(['inspect', sys.argv[1]]);"
        "sys.exit(code or any(name in sys.modules for name in ('torch', 'onnx', 'onnxruntime')))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    subprocess.run([sys.executable, "-c", script, str(bundle.path)], env=environment, check=True, capture_output=True)
