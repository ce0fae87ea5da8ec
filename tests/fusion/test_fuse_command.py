"""`gaussport fuse` as a user runs it: a bundle that verifies, or a reason and nothing written."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch

from gaussport.cli import main
from gaussport.errors import GaussportError
from gaussport.export.bundle.store import open_bundle
from gaussport.export.fusion import bundling
from gaussport.export.fusion.pipeline import NothingFusedError, fuse_model
from gaussport.export.verification.checks import verify_bundle
from tests.fusion.foreign import lookalikes, ssog
from tests.fusion.foreign.classifier import VisionTransformer
from tests.fusion.foreign.exporting import exported


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`saved(style)`: the file that a user has."""
    made: dict[str, Path] = {}
    styles = {**ssog.STYLES, **vars(lookalikes)}

    def get(style: str) -> Path:
        if style not in made:
            torch.manual_seed(5)
            module = VisionTransformer(styles[style])
            made[style] = tmp_path_factory.mktemp("foreign") / f"{style}.onnx"
            onnx.save(exported(module, module.image, "torchscript", 17), made[style])
        return made[style]

    return get


def test_the_bundle_verifies(saved: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join("abcde"))
    bundle = tmp_path / "bundle"
    code = main(["fuse", str(saved("EinsumSteered")), "-o", str(bundle), "--labels", str(labels), "--max-batch", "4"])
    told = capsys.readouterr().out
    assert code == 0
    assert "fused    SeparableGaussianFilter for " in told
    assert "assumed preprocessing" in told
    findings = list(verify_bundle(bundle))
    assert [finding.text for finding in findings if finding.result != "ok"] == []
    manifest = open_bundle(bundle).manifest
    assert manifest.labels == tuple("abcde")
    assert manifest.provenance.assumed == ("preprocessing",)
    assert manifest.config["fused"] == {"SeparableGaussianFilter": 1}
    assert manifest.input.shape == ("batch", 3, 16, 24)
    report = json.loads(open_bundle(bundle).read("report.json"))
    assert report["fusion"]["fused"][0]["error"] <= 1e-5
    assert {comparison["batch"] for comparison in report["comparisons"]} >= {1, 2, 4}


def test_preprocessing_can_be_stated(saved: Callable[[str], Path], tmp_path: Path) -> None:
    words = ["--mean", "0.4,0.5,0.6", "--std", "0.2,0.2,0.2", "--resize", "30", "--interpolation", "bicubic"]
    assert main(["fuse", str(saved("MatmulFixed")), "-o", str(tmp_path / "b"), "--max-batch", "2", *words]) == 0
    manifest = open_bundle(tmp_path / "b").manifest
    assert (manifest.preprocessing.mean, manifest.preprocessing.resize_shorter) == ((0.4, 0.5, 0.6), 30)
    assert manifest.provenance.assumed == ("labels",)


def test_nothing_fused_writes_nothing(
    saved: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    assert main(["fuse", str(saved("TopK")), "-o", str(bundle)]) == 1
    told = capsys.readouterr()
    assert "a top-k mask" in told.out
    assert "--allow-none" in told.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_fused_may_be_allowed(saved: Callable[[str], Path], tmp_path: Path) -> None:
    result = fuse_model(saved("TopK"), tmp_path / "b", max_batch=2, allow_none=True)
    assert result.fused == ()
    assert len(result.refused) == 1
    assert result.bundle.manifest.operators == {}


def test_json_tells_what_was_refused(
    saved: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fuse", str(saved("TopK")), "-o", str(tmp_path / "b"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["fused"] == []
    assert set(document["refused"][0]) == {"node", "value", "reason"}


def fixed_batch(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2


def half_weights(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(onnx.helper.make_tensor("half", onnx.TensorProto.FLOAT16, [1], [1.0]))


def two_outputs(model: onnx.ModelProto) -> None:
    model.graph.output.append(onnx.ValueInfoProto(name=model.graph.node[-2].output[0]))


def open_size(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"


def distant_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 99


@pytest.mark.parametrize(
    ("mutate", "words"),
    [
        (fixed_batch, "takes batches of 2 only"),
        (half_weights, "stored in 16 bits"),
        (two_outputs, "1 inputs and 2 outputs"),
        (open_size, "has no fixed size"),
        (distant_opset, "is of opset 99"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_models_that_cannot_be_used_are_refused(
    saved: Callable[[str], Path], tmp_path: Path, mutate: Callable[[onnx.ModelProto], None], words: str
) -> None:
    model = onnx.load(saved("MatmulFixed"))
    mutate(model)
    onnx.save(model, tmp_path / "mutant.onnx")
    with pytest.raises(GaussportError, match=words):
        fuse_model(tmp_path / "mutant.onnx", tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x08\x01"], ids=["empty", "text", "header"])
def test_files_that_are_no_model_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.onnx").write_bytes(content)
    assert main(["fuse", str(tmp_path / "file.onnx"), "-o", str(tmp_path / "b")]) == 1
    assert not (tmp_path / "b").exists()


def test_what_is_no_model_is_refused_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    files = {
        "empty.onnx": (b"", "is empty"),
        "pointer.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
        "page.onnx": (b"<!DOCTYPE html><html>", "is not an ONNX model"),
    }
    for name, (content, _) in files.items():
        (tmp_path / name).write_bytes(content)
    words = {name: word for name, (_, word) in files.items()} | {"missing.onnx": "cannot be read: No such file"}
    script = (
        "import sys; from gaussport.cli import main; "
        "print([main(['fuse', path, '-o', 'bundle']) for path in sys.argv[1:]], {'torch', 'onnx'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1, 1, 1, 1] set()"
    told = done.stderr.splitlines()
    assert len(told) == len(words)
    assert all(f"{name} {word}" in line for line, (name, word) in zip(told, words.items(), strict=True))


def test_a_model_that_has_our_operators_already_is_told_so(saved: Callable[[str], Path], tmp_path: Path) -> None:
    bundle = fuse_model(saved("EinsumSteered"), tmp_path / "bundle", max_batch=1).bundle
    with pytest.raises(GaussportError, match=r"has our operators already \(1 SeparableGaussianFilter\)"):
        fuse_model(bundle.path / "model.onnx", tmp_path / "again", allow_none=True)
    assert not (tmp_path / "again").exists()


def test_labels_that_do_not_fit_are_refused(saved: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\n")
    assert (
        main(["fuse", str(saved("MatmulFixed")), "-o", str(tmp_path / "b"), "--labels", str(tmp_path / "labels.txt")]) == 1
    )
    assert not (tmp_path / "b").exists()


def test_the_whole_model_is_proved_as_well(
    saved: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fused model that answers differently is never written, whatever each match's own proof said."""
    fuse = bundling.fuse

    def damaged(model: onnx.ModelProto) -> object:
        fusion = fuse(model)
        head = next(t for t in fusion.model.graph.initializer if t.name.endswith("head.bias"))
        head.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(head) + 0.01, head.name))
        return fusion

    monkeypatch.setattr(bundling, "fuse", damaged)
    with pytest.raises(GaussportError, match=r"differs from the given model's by 1\.0\de-02"):
        fuse_model(saved("MatmulFixed"), tmp_path / "b", max_batch=2)
    assert not (tmp_path / "b").exists()


def test_the_error_carries_what_was_refused(saved: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(NothingFusedError) as caught:
        fuse_model(saved("QueryRows"), tmp_path / "b")
    assert "query token" in caught.value.refused[0].reason
