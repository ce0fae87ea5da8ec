"""A bundle that is not what it says fails `verify` with a sentence that names the thing, though every hash is right."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import DATA_FILE, Manifest
from gaussport.export.bundle.store import Bundle
from gaussport.export.verification.checks import CHECKS, Finding, verify_bundle

Mutant = Callable[..., Path]


def _failed(path: Path, checkpoint: Path | None = None) -> list[Finding]:
    findings = list(verify_bundle(path, checkpoint))
    assert all("\n" not in finding.text for finding in findings)
    return [finding for finding in findings if finding.result == "FAILED"]


def test_a_good_bundle_passes_every_check(bundle: Bundle, checkpoint_path: Path) -> None:
    findings = list(verify_bundle(bundle.path, checkpoint_path))
    assert [finding.result for finding in findings] == ["ok"] * len(findings)
    assert [finding.check for finding in findings] == [
        "files",
        *(check.name for check in CHECKS),
        "weights",
        "pytorch",
        "explained",
    ]


def test_an_unchanged_mutant_passes(mutant: Mutant) -> None:
    assert _failed(mutant()) == []


def test_a_zip_passes(bundle: Bundle, tmp_path: Path) -> None:
    packed = shutil.make_archive(str(tmp_path / "tiny"), "zip", bundle.path)
    assert _failed(Path(packed)) == []


def test_a_changed_byte_fails_and_nothing_else_is_asked(bundle: Bundle, tmp_path: Path) -> None:
    path = Path(shutil.copytree(bundle.path, tmp_path / "tiny"))
    data = bytearray((path / "model.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "model.onnx").write_bytes(data)
    (finding,) = verify_bundle(path)
    assert (finding.check, finding.result) == ("files", "FAILED")
    assert "model.onnx" in finding.text


def test_a_missing_bundle_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        list(verify_bundle(tmp_path / "nothing"))


# -- mutants: each is (change of the model, the check that notices, words of its sentence) -----------------------------


def _no_functions(model: onnx.ModelProto) -> None:
    del model.functions[:]


def _no_function_imports(model: onnx.ModelProto) -> None:
    del model.functions[0].opset_import[:]


def _no_domain(model: onnx.ModelProto) -> None:
    kept = [entry for entry in model.opset_import if entry.domain != "gaussport"]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _domain_version_2(model: onnx.ModelProto) -> None:
    next(entry for entry in model.opset_import if entry.domain == "gaussport").version = 2


def _unknown_operator(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.domain == "gaussport").op_type = "Attention9"


def _foreign_domain(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "Gelu")
    node.domain = "com.example"
    model.opset_import.append(onnx.helper.make_opsetid("com.example", 3))


def _duplicate_initializer(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(next(t for t in model.graph.initializer if t.name == "head.bias"))


def _double_initializer(model: onnx.ModelProto) -> None:
    tensor = next(t for t in model.graph.initializer if t.name == "head.bias")
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def _fixed_batch(model: onnx.ModelProto) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1


def _opset(version: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
            next(entry for entry in imports if entry.domain == "").version = version

    return change


def _ir_99(model: onnx.ModelProto) -> None:
    model.ir_version = 99


def _other_input_name(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "image"
    for node in model.graph.node:
        node.input[:] = ["image" if name == "pixels" else name for name in node.input]


def _fewer_classes(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7


def _two_outputs(model: onnx.ModelProto) -> None:
    model.graph.output.append(onnx.helper.make_tensor_value_info("val_29", TensorProto.FLOAT, None))


def _untyped_output(model: onnx.ModelProto) -> None:
    model.graph.output[0].ClearField("type")


def _unknown_operand(model: onnx.ModelProto) -> None:
    model.graph.node[3].input[0] = "nobody"


def _bad_attribute(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.op_type == "Transpose").attribute[0].ints[:] = [0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        pytest.param(_no_functions, "operators", ("blocks.0.attn", "SeparableGaussianFilter version 1", "body")),
        pytest.param(_no_function_imports, "operators", ("SeparableGaussianFilter", "imports no opset")),
        pytest.param(_no_domain, "operators", ("blocks.0.attn", "does not import the domain gaussport")),
        pytest.param(_domain_version_2, "operators", ("gaussport version 2", "knows version 1 only")),
        pytest.param(_unknown_operator, "operators", ("blocks.0.attn", "gaussport::Attention9")),
        pytest.param(_foreign_domain, "operators", ("blocks.0.mlp.1/Gelu", "com.example::Gelu version 3")),
        pytest.param(_duplicate_initializer, "tensors", ("two initializers", "head.bias")),
        pytest.param(_double_initializer, "tensors", ("head.bias", "float64")),
        pytest.param(_fixed_batch, "manifest", ("pixels", "batch axis fixed at 1")),
        pytest.param(_opset(7), "versions", ("opset 7", "18 to 25")),
        pytest.param(_opset(99), "versions", ("opset 99", "18 to 25")),
        pytest.param(_opset(21), "manifest", ("opset 21", "manifest says 20")),
        pytest.param(_ir_99, "versions", ("IR version 99",)),
        pytest.param(_other_input_name, "manifest", ("image float32", "manifest says pixels float32")),
        pytest.param(_fewer_classes, "manifest", ("logits float32 [batch, 7]", "[batch, 10]")),
        pytest.param(_two_outputs, "manifest", ("2 outputs",)),
        pytest.param(_untyped_output, "manifest", ("logits", "no type or shape")),
        pytest.param(_unknown_operand, "checker", ("onnx.checker refuses",)),
        pytest.param(_bad_attribute, "session", ("ONNX Runtime", "refuses")),
    ],
)
def test_a_mutant_fails_by_name(
    mutant: Mutant, change: Callable[[onnx.ModelProto], None], check: str, words: tuple[str, ...]
) -> None:
    findings = {finding.check: finding.text for finding in _failed(mutant(change))}
    assert check in findings
    for word in words:
        assert word in findings[check]


def test_a_file_that_is_no_model_fails(mutant: Mutant, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mutant()
    monkeypatch.setattr(Bundle, "read", lambda *_: b"not a model at all")
    (finding,) = _failed(path)
    assert (finding.check, finding.text) == ("graph", "model.onnx is not an ONNX model: export the bundle again")


def _negate_largest_weight(model: onnx.ModelProto) -> None:
    floats = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.dims]
    largest = max(floats, key=lambda tensor: float(np.abs(numpy_helper.to_array(tensor)).max()))
    values = numpy_helper.to_array(largest).copy()
    values.flat[np.abs(values).argmax()] *= -1
    largest.CopyFrom(numpy_helper.from_array(values, largest.name))


def test_a_negated_weight_fails_against_the_checkpoint(mutant: Mutant, checkpoint_path: Path) -> None:
    weights, pytorch, layer = _failed(mutant(_negate_largest_weight), checkpoint_path)
    assert (weights.check, pytorch.check, layer.check) == ("weights", "pytorch", "layer")
    assert f"is not {checkpoint_path.name}'s: 1 of " in weights.text
    assert "is not the checkpoint's: 1 of " in layer.text
    for word in ("at batch 1", "logits", "more than the tolerance"):
        assert word in pytorch.text


def test_a_weight_that_hardly_matters_fails_against_the_checkpoint(mutant: Mutant, checkpoint_path: Path) -> None:
    def nudge(model: onnx.ModelProto) -> None:
        tensor = next(t for t in model.graph.initializer if t.name == "blocks.1.attn.v.weight.T")
        values = numpy_helper.to_array(tensor).copy()
        values[3, 5] = np.nextafter(values[3, 5], np.float32(1))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

    (finding,) = _failed(mutant(nudge), checkpoint_path)
    assert finding.text.startswith(
        f"blocks.1.attn.v.weight.T is not {checkpoint_path.name}'s: 1 of 1024 numbers differ, by up to"
    )


def test_a_nan_weight_fails_without_a_checkpoint(mutant: Mutant) -> None:
    def poison(model: onnx.ModelProto) -> None:
        bias = next(tensor for tensor in model.graph.initializer if tensor.name == "head.bias")
        bias.CopyFrom(numpy_helper.from_array(np.full(10, np.nan, np.float32), "head.bias"))

    batches, layer = _failed(mutant(poison))
    assert (batches.check, "NaN" in batches.text) == ("batches", True)
    assert layer.text.startswith("head/Gemm is the first to give NaN or infinity, 10 of 10 numbers at batch 1")
    assert layer.text.endswith("suspect: the weight head.bias, 10 of whose 10 numbers are NaN or infinite")


def test_another_models_checkpoint_fails(
    bundle: Bundle, relabelled: Callable[[tuple[str, ...]], Path], tmp_path: Path
) -> None:
    same_weights = relabelled(tuple("abcdefghij"))
    findings = list(verify_bundle(bundle.path, same_weights))
    assert findings[-1].result == "ok"
    assert "another file than the bundle was made of" in findings[-2].text
    assert [f.check for f in _failed(bundle.path, tmp_path / "nothing.pt")] == ["weights", "pytorch"]


def test_the_largest_batch_is_run(mutant: Mutant) -> None:
    def reshape_to_16(model: onnx.ModelProto) -> None:
        """Rows beyond sixteen are lost: only a batch that large shows it."""
        model.graph.node[-1].output[0] = "all"
        for name, value in (("start", 0), ("end", 16), ("axis", 0)):
            model.graph.initializer.append(numpy_helper.from_array(np.array([value], np.int64), name))
        model.graph.node.append(onnx.helper.make_node("Slice", ["all", "start", "end", "axis"], ["logits"], "cut"))

    def larger(manifest: Manifest) -> Manifest:
        return manifest.model_copy(update={"max_batch": 17})

    (finding,) = _failed(mutant(reshape_to_16, larger))
    assert (finding.check, finding.text) == ("batches", "batch 17 gives logits of shape [16, 10], not [17, 10]")


# -- external data -----------------------------------------------------------------------------------------------------


def _external(location: str, **numbers: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        bias = next(tensor for tensor in model.graph.initializer if tensor.name == "head.bias")
        bias.ClearField("raw_data")
        bias.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **numbers}.items():
            bias.external_data.add(key=key, value=value)

    return change


def test_external_data_inside_the_bundle_runs(mutant: Mutant, bundle: Bundle, tmp_path: Path) -> None:
    path = mutant(_external(DATA_FILE), extra={DATA_FILE: bytes(40)})
    assert _failed(path) == []
    assert _failed(Path(shutil.make_archive(str(tmp_path / "packed"), "zip", path))) == []


@pytest.mark.parametrize(
    ("location", "numbers", "words"),
    [
        pytest.param("missing.bin", {}, ("missing.bin", DATA_FILE), id="data_renamed"),
        pytest.param(DATA_FILE, {"offset": "8"}, (DATA_FILE, "which has 40"), id="data_truncated"),
        pytest.param("../weights.bin", {}, ("'../weights.bin'", "outside"), id="trav_dotdot"),
        pytest.param("a/../../weights.bin", {}, ("outside",), id="trav_inner"),
        pytest.param("/etc/passwd", {}, ("'/etc/passwd'", "outside"), id="trav_passwd"),
        pytest.param("", {}, ("outside",), id="no location"),
        pytest.param(DATA_FILE, {"length": "1000000000000000"}, ("claims 1000000000000000",), id="len_1e15"),
        pytest.param(DATA_FILE, {"length": "-1"}, ("length '-1'",), id="len_neg"),
        pytest.param(DATA_FILE, {"length": "many"}, ("length 'many'",), id="len_text"),
        pytest.param(DATA_FILE, {"offset": "9" * 5000}, ("no number of bytes",), id="offset of 5000 digits"),
    ],
)
def test_external_data_is_not_believed(
    mutant: Mutant, location: str, numbers: dict[str, str], words: tuple[str, ...]
) -> None:
    path = mutant(_external(location, **numbers), extra={DATA_FILE: bytes(40)})
    findings = list(verify_bundle(path))
    failed = {finding.check: finding.text for finding in findings if finding.result == "FAILED"}
    assert list(failed) == ["tensors"]
    for word in ("head.bias", *words):
        assert word in failed["tensors"]
    # Nothing that would read the data is run.
    assert {f.check for f in findings if f.result == "skipped"} == {
        "checker", "size", "session", "batches", "engines", "inlined", "explain"
    }  # fmt: skip


def test_missing_external_data_is_named(mutant: Mutant) -> None:
    failed = {finding.check: finding.text for finding in _failed(mutant(_external(DATA_FILE)))}
    assert list(failed) == ["tensors"]
    assert f"its data in {DATA_FILE}, which the bundle does not have" in failed["tensors"]


def test_a_bundle_is_verified_from_any_folder(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundle.path.parent)
    relative = Path(bundle.path.name)
    assert not relative.is_absolute()
    assert _failed(relative) == []
    monkeypatch.chdir(tmp_path)
    assert _failed(Path(os.path.relpath(bundle.path))) == []
