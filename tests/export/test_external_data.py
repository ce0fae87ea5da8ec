"""Weights beside the graph: the same proof, the same answers served, in a folder, a zip or a folder of links; nothing that
the graph says of the file is believed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from gaussport.errors import BundleError, GaussportError
from gaussport.export import model_file
from gaussport.export.bundle.manifest import DATA_FILE, MODEL_FILE
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.model_file import ModelFile, tensor_array
from gaussport.export.pipeline import export_checkpoint
from gaussport.export.session import Session
from gaussport.export.verification.checks import verify_bundle
from gaussport.serving.runtime import Runtime

Mutant = Callable[..., Path]
PIXELS = np.random.default_rng(0).standard_normal((3, 3, 24, 40), dtype=np.float32)


@pytest.fixture
def external(checkpoint_path: Path, tmp_path: Path, traced_once: None) -> Path:
    return export_checkpoint(checkpoint_path, tmp_path / "external", max_batch=2, external_data=True).path


def _model(path: Path) -> onnx.ModelProto:
    return onnx.load_model_from_string((path / MODEL_FILE).read_bytes())


def test_large_weights_lie_beside_the_graph_and_nothing_else_changes(external: Path, bundle: Bundle) -> None:
    model, data = _model(external), (external / DATA_FILE).read_bytes()
    outside = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert outside
    assert len((external / MODEL_FILE).read_bytes()) < len(bundle.read(MODEL_FILE)) / 2
    before = {
        t.name: onnx.numpy_helper.to_array(t) for t in onnx.load_model_from_string(bundle.read(MODEL_FILE)).graph.initializer
    }
    file = ModelFile(b"", {DATA_FILE: data})
    for tensor in model.graph.initializer:
        np.testing.assert_array_equal(tensor_array(tensor, file), before[tensor.name])
    assert all(int(e.value) % 4096 == 0 for t in outside for e in t.external_data if e.key == "offset")


def test_onnx_reads_it_by_itself(external: Path) -> None:
    """Who copies the two files out of the bundle has a model that any tool reads."""
    onnx.checker.check_model(str(external / MODEL_FILE), full_check=True)
    assert not [t for t in onnx.load(external / MODEL_FILE).graph.initializer if t.data_location == TensorProto.EXTERNAL]


def test_it_is_proved_as_every_bundle_is(external: Path, checkpoint_path: Path) -> None:
    findings = {finding.check: finding for finding in verify_bundle(external, checkpoint_path)}
    assert {finding.result for finding in findings.values()} == {"ok"}
    assert "weights equal" in findings["weights"].text
    assert "differs from PyTorch by at most" in findings["pytorch"].text
    assert f"of them in {DATA_FILE}" in findings["tensors"].text


def test_it_serves_what_the_other_serves(external: Path, bundle: Bundle, tmp_path: Path) -> None:
    expected = Runtime(bundle, threads=1).run(PIXELS)
    packed = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", external))
    for path in (external, packed):
        np.testing.assert_array_equal(Runtime(open_bundle(path), threads=1).run(PIXELS), expected)
        assert {finding.result for finding in verify_bundle(path)} == {"ok"}


def test_links_serve_and_verify_alike(external: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "cache" / "blobs", tmp_path / "cache" / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(external.iterdir())):
        shutil.copyfile(path, blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert {finding.result for finding in verify_bundle(snapshot)} == {"ok"}
    np.testing.assert_array_equal(
        Runtime(open_bundle(snapshot), threads=1).run(PIXELS), Runtime(open_bundle(external), threads=1).run(PIXELS)
    )
    (snapshot / DATA_FILE).unlink()
    (snapshot / DATA_FILE).symlink_to(external / DATA_FILE)
    for refused in (lambda: list(verify_bundle(snapshot)), lambda: Runtime(open_bundle(snapshot))):
        with pytest.raises(BundleError, match="link that leads outside"):
            refused()


@pytest.mark.usefixtures("traced_once")
def test_exporting_again_never_appends(external: Path, checkpoint_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in external.iterdir() if path.name in (MODEL_FILE, DATA_FILE)}
    export_checkpoint(checkpoint_path, external, max_batch=2, external_data=True, overwrite=True)
    assert before == {name: (external / name).read_bytes() for name in before}
    export_checkpoint(checkpoint_path, external, max_batch=2, overwrite=True)
    assert not (external / DATA_FILE).exists()


@pytest.mark.usefixtures("traced_once")
def test_a_model_that_one_file_cannot_hold_is_split(
    checkpoint_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_file, "LIMIT_BYTES", 10_000)
    bundle = export_checkpoint(checkpoint_path, tmp_path / "large", max_batch=1)
    assert DATA_FILE in bundle.manifest.files


def test_a_missing_or_cut_file_is_named(external: Path) -> None:
    whole = (external / DATA_FILE).read_bytes()
    (external / DATA_FILE).write_bytes(whole[:-1])
    with pytest.raises(BundleError, match=rf"{DATA_FILE} in .* has {len(whole) - 1} bytes and should have {len(whole)}"):
        list(verify_bundle(external))
    (external / DATA_FILE).unlink()
    with pytest.raises(BundleError, match=f"external lacks its file {DATA_FILE}"):
        Runtime(open_bundle(external, check_hashes=False))


@pytest.mark.parametrize(
    "lie",
    [
        {"location": "../secret"}, {"location": "/etc/passwd"}, {"location": "a/../../secret"}, {"location": ""},
        {"offset": "-8"}, {"offset": "100000000"}, {"length": "1000000000000000"}, {"length": "-1"}, {"length": "many"},
    ],
)  # fmt: skip
def test_a_lying_graph_is_refused_by_verify_and_by_the_server(mutant: Mutant, external: Path, lie: dict[str, str]) -> None:
    def tell(model: onnx.ModelProto) -> None:
        model.CopyFrom(_model(external))
        tensor = next(t for t in model.graph.initializer if t.name == "blocks.1.mlp.2.weight.T")
        for entry in tensor.external_data:
            entry.value = lie.get(entry.key, entry.value)

    path = mutant(tell, extra={DATA_FILE: (external / DATA_FILE).read_bytes()})
    (finding,) = [finding for finding in verify_bundle(path) if finding.result == "FAILED"]
    assert finding.check == "tensors"
    assert "blocks.1.mlp.2.weight.T" in finding.text
    with pytest.raises(GaussportError, match=r"model\.onnx of .*mutant"):
        Runtime(open_bundle(path), threads=1)


def test_tensors_that_overlap_are_refused(mutant: Mutant, external: Path) -> None:
    def overlap(model: onnx.ModelProto) -> None:
        model.CopyFrom(_model(external))
        second = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL][1]
        next(entry for entry in second.external_data if entry.key == "offset").value = "4"

    path = mutant(overlap, extra={DATA_FILE: (external / DATA_FILE).read_bytes()})
    (finding,) = [finding for finding in verify_bundle(path) if finding.result == "FAILED"]
    assert "share bytes of" in finding.text


def test_bytes_that_were_hashed_are_the_bytes_that_run(external: Path) -> None:
    """A file that is replaced after its hash was compared does not reach the runtime."""
    content = open_bundle(external).content(DATA_FILE)
    before = Session(ModelFile((external / MODEL_FILE).read_bytes(), {DATA_FILE: content})).run(PIXELS)
    (external / DATA_FILE).rename(external / "old")
    (external / DATA_FILE).write_bytes(bytes(len(content)))
    after = Session(ModelFile((external / MODEL_FILE).read_bytes(), {DATA_FILE: content})).run(PIXELS)
    np.testing.assert_array_equal(after, before)
