"""`gaussport export --precision`: what it writes, says and refuses, end to end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from gaussport.cli import main
from gaussport.errors import ProofError, ServingError
from gaussport.export import work
from gaussport.export.bundle.store import open_bundle
from gaussport.export.model_file import ModelFile, serialize
from gaussport.export.precision.accuracy import Accuracy
from gaussport.export.precision.census import precision_of
from gaussport.export.precision.conversion import Conversion
from gaussport.export.precision.judgement import require_accuracy
from gaussport.export.precision.wish import PrecisionWish
from gaussport.export.progress import unwatched
from gaussport.export.verification.checks import verify_bundle
from gaussport.models.checkpoint import write_checkpoint
from gaussport.serving.runtime import Runtime
from tests.precision.subjects import Zoo

Export = Callable[..., int]


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


@pytest.fixture
def export(ssog: Zoo, destination: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    """`export(*options)` of the zoo's SSOG, with the graph that was traced before."""

    def run(*options: str, path: Path = ssog.path, model: onnx.ModelProto = ssog.model) -> int:
        monkeypatch.setattr(work, "export_onnx", lambda *_: model)
        return main(["export", str(path), "-o", str(destination), "--max-batch", "4", *options])

    return run


def test_fp16_is_written_proved_verified_and_served(export: Export, destination: Path, ssog: Zoo) -> None:
    assert export("--precision", "fp16", "--keep-fp32", "blocks.0.mlp", "patch_embed") == 0
    bundle = open_bundle(destination)
    assert bundle.manifest.precision == "fp16"
    assert set(bundle.manifest.kept_fp32) == {"patch_embed", *(f"blocks.0.mlp.{n}" for n in range(3))}
    assert bundle.manifest.input.dtype == bundle.manifest.output.dtype == "float32"
    report = json.loads(bundle.read("report.json"))
    assert {c["subject"] for c in report["comparisons"]} == {"as written", "inlined", "rounded at every step"}
    assert report["precision"]["layers"]["fp16"] > 25
    assert report["precision"]["checkpoint_metrics"] == bundle.manifest.metrics != {}
    answers = Runtime(bundle, threads=1).run(ssog.digits[:8])
    assert np.abs(answers - ssog.logits[:8]).max() < 0.05
    findings = {f.check: f for f in verify_bundle(destination, ssog.path)}
    assert {f.result for f in findings.values()} == {"ok"}, findings


def test_precision_is_read_from_the_graph_not_from_the_flag(export: Export, destination: Path, ssog: Zoo) -> None:
    every_layer = ["residual", "patch_embed", *(f"blocks.{n}" for n in range(4))]
    assert export("--precision", "fp16", "--keep-fp32", *every_layer) == 0
    bundle = open_bundle(destination)
    assert precision_of(onnx.load_model_from_string(bundle.read("model.onnx"))) == "fp32"
    assert bundle.manifest.precision == "fp32"


def test_int8_reports_the_drop_and_keeps_the_weights(
    export: Export, destination: Path, ssog: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = digits(ssog, tmp_path / "digits", 40)
    options = ["--precision", "int8", "--calibration-data", folder, "--data", folder, "--max-drop", "5"]
    assert export(*options) == 0
    assert "accuracy as written" in capsys.readouterr().out
    bundle = open_bundle(destination)
    assert bundle.manifest.precision == "int8"
    (accuracy,) = json.loads(bundle.read("report.json"))["precision"]["accuracy"]
    assert accuracy["pictures"] == 40
    assert accuracy["drop_points"] <= 5
    weights = next(f for f in verify_bundle(destination, ssog.path) if f.check == "weights")
    assert weights.result == "ok"
    assert weights.text.startswith("79 weights equal")


def test_a_model_that_loses_too_much_is_refused_with_the_layer_to_keep(ssog: Zoo, tmp_path: Path) -> None:
    skewed = ssog.with_tensor("head.bias", lambda bias: bias + np.resize(np.asarray([-1.9, 1.9], np.float32), bias.shape))
    layer = "blocks.2.mlp.0"
    conversion = Conversion(skewed, {}, ("patch_embed", layer), lambda keep: ssog.model if layer in keep else skewed)
    trained = work.trained_classifier(ssog.checkpoint)
    folder = digits(ssog, tmp_path / "digits", 40)

    def judged(max_drop: float | None) -> tuple[Accuracy, ...]:
        wish = PrecisionWish("int8", calibration_data=folder, data=folder, max_drop=max_drop)
        return require_accuracy(trained, ModelFile(serialize(skewed)), conversion, wish, unwatched)

    (accuracy,) = judged(None)
    assert accuracy.drop > 0.5
    assert accuracy.checkpoint - accuracy.model == pytest.approx(accuracy.drop / 100)
    with pytest.raises(ProofError, match=rf"points, more than --max-drop 0\.5; keep these .* --keep-fp32 {layer} \("):
        judged(0.5)
    assert judged(100) == (accuracy,)


def test_bf16_says_that_it_needs_a_gpu(export: Export, destination: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export("--precision", "bf16") == 0
    assert "GPU only" in capsys.readouterr().out
    bundle = open_bundle(destination)
    assert {c["subject"] for c in json.loads(bundle.read("report.json"))["comparisons"]} == {"rounded at every step"}
    with pytest.raises(ServingError, match="CPU provider cannot multiply bfloat16"):
        Runtime(bundle, threads=1)


def test_a_residual_stream_of_8000_fails_with_the_layer_to_keep_and_passes_with_it(
    export: Export, destination: Path, ssog: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {**ssog.checkpoint.state_dict, "pos_embed": ssog.checkpoint.state_dict["pos_embed"] + 8000}
    path = tmp_path / "resid_8000.safetensors"
    write_checkpoint(path, replace_state(ssog.checkpoint, state))
    model = ssog.with_tensor("pos_embed", lambda embedding: embedding + np.float32(8000))
    wish: dict[str, Any] = {"path": path, "model": model}
    assert export("--precision", "fp16", **wish) == 1
    assert "keep these layers in float32: --keep-fp32 residual (the smallest set" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not destination.exists()
    assert export("--precision", "fp16", "--keep-fp32", "residual", **wish) == 0
    module = work.trained_classifier(work.read_any_checkpoint(path)).module
    with torch.no_grad():
        expected = module(torch.from_numpy(ssog.digits[:64])).numpy()
    answers = Runtime(open_bundle(destination), threads=1).run(ssog.digits[:64])
    assert np.isfinite(answers).all()
    assert np.array_equal(answers.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--precision", "int8"], "int8 needs pictures"),
        (["--precision", "fp16", "--calibration-data", "mnist"], "fp16 needs no calibration"),
        (["--keep-fp32", "head"], "choose --precision as well"),
        (["--max-drop", "1"], "needs labelled pictures"),
        (["--data", "mnist", "--max-drop", "-1"], "must be from 0 to 100"),
        (["--precision", "int8", "--calibration-data", "/nowhere"], "is no folder"),
        (["--precision", "int8", "--calibration-data", ""], "--calibration-data is '', which is no folder"),
        (["--data", ""], "--data is '', which is no folder"),
        (["--reduced-decoding", ""], "--reduced-decoding is '', which is no folder"),
        (["--precision", "fp16", "--keep-fp32", "blocks.77"], "there is no layer 'blocks.77'"),
        (["--precision", "fp8"], "invalid choice: 'fp8'"),
    ],
)
def test_wishes_that_cannot_be_are_refused(
    export: Export, destination: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    try:
        code = export(*options)
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not destination.exists()


def test_an_unknown_layer_is_refused_before_the_tracing(
    ssog: Zoo, destination: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work, "export_onnx", lambda *_: pytest.fail("it was traced"))
    words = ["export", str(ssog.path), "-o", str(destination), "--precision", "bf16", "--keep-fp32"]
    assert main([*words, "residual", "bloks.3"]) == 2
    assert "there is no layer 'bloks.3' to keep in float32: the model has blocks, blocks.0, " in capsys.readouterr().err
    assert not destination.exists()


def digits(zoo: Zoo, folder: Path, count: int) -> str:
    """Held-out digits as folder/label/n.png."""
    from gaussport.models.data.mnist import mnist

    held_out = mnist().held_out
    for index in range(0, 1000, 1000 // count):
        file = folder / zoo.checkpoint.labels[held_out.targets[index]] / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        held_out.picture(index).save(file)
    return str(folder)


def replace_state(checkpoint: Any, state: dict[str, torch.Tensor]) -> Any:
    from dataclasses import replace

    return replace(checkpoint, state_dict=state)


@pytest.mark.parametrize(
    "options", [("--precision", "int8", "--calibration-data"), ("--data",)], ids=["calibration", "data"]
)
def test_a_folder_without_pictures_is_refused_before_the_model_is_traced(
    options: tuple[str, ...], ssog: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work, "export_onnx", lambda *_: pytest.fail("the model was traced"))
    (tmp_path / "pictures").mkdir()
    bundle = tmp_path / "bundle"
    assert main(["export", str(ssog.path), "-o", str(bundle), *options, str(tmp_path / "pictures")]) == 1
    assert "has no pictures" in capsys.readouterr().err
    assert not bundle.exists()
