"""Engines are built for real, by TensorRT-RTX and without a GPU: plugins in every attention, precision, files, refusals."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import pytest

from gaussport.cli import main
from gaussport.errors import BundleError, EngineError, UsageError
from gaussport.export.bundle.engines import CONTEXT_FILE, ENGINE_FILE, ENGINES_FOLDER, LAYERS_FILE, PLUGIN_FILE
from gaussport.export.bundle.manifest import MODEL_FILE
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.engine import build
from gaussport.export.engine.build import build_engines
from gaussport.export.engine.isolation import run_worker
from gaussport.export.engine.wish import Wish
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.runtime import Runtime

DEPTH, MAX_BATCH = 2, 8  # of the bundles in conftest

pytestmark = pytest.mark.usefixtures("rtx", "quick_kernels")


def rtx(*architectures: int, **wishes: object) -> Wish:
    return Wish("tensorrt-rtx", architectures, **wishes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "precision", "architectures"),
    [
        ("ssog", "fp32", (86, 89, 120)),
        ("ssog", "fp16", (86,)),
        ("gma", "bf16", (120,)),
    ],
)
def test_every_attention_layer_is_a_plugin_of_the_asked_precision(
    copied: Callable[[str], Path], kind: str, precision: str, architectures: tuple[int, ...]
) -> None:
    path, depth = copied(kind), DEPTH
    bundle, built = build_engines(path, rtx(*architectures, precision=precision))
    assert [engine.record.architecture for engine in built] == list(architectures)
    for engine in built:
        assert engine.record.plugin_layers == depth
        assert engine.summary[f"plugin {precision}"] == depth
        assert engine.summary[f"matrix multiply {precision}"] >= 4 * depth
        home = f"{ENGINES_FOLDER}/{engine.record.name}"
        layers = json.loads(bundle.read(f"{home}/{LAYERS_FILE}"))["network"]
        plugins = {layer["name"]: layer for layer in layers if layer["plugin"]}
        assert set(plugins) == {f"blocks.{index}.attn" for index in range(depth)}
        assert {layer["precision"] for layer in plugins.values()} == {precision}
        wide = [layer["precision"] for layer in layers if layer["kind"] in ("NORMALIZATION", "SOFTMAX", "REDUCE")]
        assert set(wide) == {"fp32"}
        assert len(bundle.read(f"{home}/{ENGINE_FILE}")) == engine.engine_bytes > 100_000
        assert bundle.read(f"{home}/{PLUGIN_FILE}")[:4] == b"\x7fELF"
    open_bundle(path)  # every hash
    assert bundle.manifest.engines == {engine.record.name: engine.record for engine in built}
    pixels = np.zeros((2, *bundle.manifest.preprocessing.tensor_shape), dtype=np.float32)
    assert Runtime(bundle, "cpu", threads=1).run(pixels).shape == (2, 10)


def test_a_quantized_graph_becomes_products_of_integers(copied: Callable[[str], Path]) -> None:
    _, (built,) = build_engines(copied("int8"), rtx(86))
    assert (built.record.precision, built.summary) == ("int8", {"matrix multiply fp32": 1, "matrix multiply int8": 1})


def test_a_zip_takes_an_engine_too_and_bodies_can_be_built_to_compare(copied: Callable[[str], Path], tmp_path: Path) -> None:
    packed = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", copied("gma")))
    bundle, (built,) = build_engines(packed, rtx(86, plugins=False))
    assert list(open_bundle(packed).manifest.engines) == [built.record.name]
    assert (built.record.plugin_layers, built.record.bodies, built.record.batches) == (0, True, (1, MAX_BATCH, MAX_BATCH))
    assert built.record.name.endswith("-fp32-bodies")
    assert len(bundle.read(f"{ENGINES_FOLDER}/{built.record.name}/{ENGINE_FILE}")) == built.engine_bytes


def test_an_engine_that_is_there_is_replaced_only_when_asked(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied("plain")
    bundle, (built,) = build_engines(path, rtx(86))
    _check_context_model(bundle, built.record.name)
    with monkeypatch.context() as patch:
        patch.setattr(build, "run_worker", lambda *_: pytest.fail("it was built before it was refused"))
        with pytest.raises(UsageError, match=r"has the engine tensorrt-rtx-.* already: pass --overwrite"):
            build_engines(path, rtx(86))
    build_engines(path, rtx(86, overwrite=True))
    assert len(open_bundle(path).manifest.engines) == 1


def _check_context_model(bundle: Bundle, name: str) -> None:
    """The EPContext node has the attributes that ONNX Runtime knows, and the bundle's own input and output."""
    model = onnx.load_model_from_string(bundle.read(f"{ENGINES_FOLDER}/{name}/{CONTEXT_FILE}"))
    (node,) = model.graph.node
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    assert (node.op_type, node.domain) == ("EPContext", "com.microsoft")
    assert attributes["ep_cache_context"] == ENGINE_FILE.encode()
    assert (attributes["embed_mode"], attributes["hardware_architecture"]) == (0, b"86")
    assert attributes["source"] == b"NvTensorRTRTXExecutionProvider"
    schemas = onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    (schema,) = [schema for schema in schemas if schema.name == "EPContext"]
    assert set(attributes) <= set(schema.attributes)
    values = (*model.graph.input, *model.graph.output)
    axes = [[axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in values]
    assert axes == [list(bundle.manifest.input.shape), list(bundle.manifest.output.shape)]


def test_a_model_that_changed_meanwhile_gets_no_engine(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied("plain")
    real = run_worker

    def meanwhile(*arguments: object) -> object:
        answer = real(*arguments)  # type: ignore[arg-type]
        manifest = json.loads((path / "bundle.json").read_text())
        data = (path / MODEL_FILE).read_bytes() + b"\n"
        (path / MODEL_FILE).write_bytes(data)
        manifest["files"][MODEL_FILE] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (path / "bundle.json").write_text(json.dumps(manifest))
        return answer

    monkeypatch.setattr(build, "run_worker", meanwhile)
    with pytest.raises(BundleError, match=r"model\.onnx of .* changed while the engine was built"):
        build_engines(path, rtx(86))
    assert not (path / ENGINES_FOLDER).exists()


def test_a_failed_build_leaves_the_bundle_as_it_was(copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied("plain")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    monkeypatch.setattr(build, "run_worker", Mock(side_effect=EngineError("no")))
    with pytest.raises(EngineError):
        build_engines(path, rtx(86))
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_the_command_prints_what_it_built(copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path, words = copied("plain"), ["--builder", "tensorrt-rtx", "--precision", "fp16"]
    batches = ["--min-batch", "2", "--opt-batch", "3", "--max-batch", "5"]
    assert main(["build-engine", str(path), *words, "--arch", "sm_86", *batches, "--json"]) == 0
    (engine,) = json.loads(capsys.readouterr().out)["engines"]
    assert (engine["architecture"], engine["precision"], engine["plugin_layers"]) == (86, "fp16", 0)
    assert engine["batches"] == [2, 3, 5]
    assert main(["build-engine", str(path), *words, "--arch", "8.9", "--timing-cache", str(path.parent / "cache")]) == 0
    answer = capsys.readouterr()
    assert "matrix multiply fp16" in " ".join(answer.out.split())
    assert f"next: gaussport serve {path} --provider tensorrt-rtx" in answer.out
    assert "TensorRT-RTX has no timing cache" in answer.err
    assert main(["build-engine", str(path), *words, "--arch", "sm_86"]) == 2
    assert main(["inspect", str(path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["engines"]) == 2
