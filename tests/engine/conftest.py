"""Bundles small enough that an engine builds in a second, and TensorRT-RTX, which builds without a GPU."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from gaussport.export.bundle.engines import CONTEXT_FILE, ENGINE_FILE, ENGINES_FOLDER, LAYERS_FILE, EngineRecord
from gaussport.export.bundle.manifest import Manifest, Provenance, TensorSpec
from gaussport.export.bundle.revision import revising_bundle
from gaussport.export.bundle.store import open_bundle, writing_bundle
from gaussport.export.pipeline import export_checkpoint
from gaussport.models.attention.gma import GMAConfig
from gaussport.models.checkpoint import Checkpoint, write_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.config import ClassifierConfig
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset

MAX_BATCH = 8
CONFIGS: dict[str, ClassifierConfig] = {
    "ssog": preset("ssog-tiny", image_size=(24, 40)),  # not square: a swap of rows and columns cannot hide
    "gma": preset("gma-tiny", attention=GMAConfig(heads=2, components=8, value_width=24, causal=True)),
}


@pytest.fixture(scope="session")
def rtx() -> None:
    """Skips where TensorRT-RTX is not installed."""
    if find_spec("tensorrt_rtx") is None:
        pytest.skip("TensorRT-RTX is not installed (96 MB to fetch): pip install 'gaussport[rtx]'")


def write_plain(path: Path, quantized: bool = False) -> None:
    """A linear classifier of pictures of 8×8, in the form that exports have; with Q/DQ around its first product if asked."""
    draw = np.random.default_rng(0).normal(0, 0.2, (192, 10)).astype(np.float32)
    constants: dict[str, Any] = {"square": np.eye(10, dtype=np.float32)}
    nodes = [onnx.helper.make_node("Flatten", ["pixels"], ["flat"], name="flatten")]
    factors = ["flat", "weight"]
    if quantized:
        constants |= {
            "scale": np.float32(0.02),
            "zero": np.int8(0),
            "codes": (draw / 0.02).round().clip(-127, 127).astype("i1"),
        }
        nodes += [
            onnx.helper.make_node("QuantizeLinear", ["flat", "scale", "zero"], ["flat.q"], name="flat/Q"),
            onnx.helper.make_node("DequantizeLinear", ["flat.q", "scale", "zero"], ["flat.dq"], name="flat/DQ"),
            onnx.helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["weight.dq"], name="weight/DQ"),
        ]
        factors = ["flat.dq", "weight.dq"]
    else:
        constants["weight"] = draw
    nodes += [
        onnx.helper.make_node("MatMul", factors, ["hidden"], name="first/MatMul"),
        onnx.helper.make_node("Relu", ["hidden"], ["active"], name="relu"),
        onnx.helper.make_node("MatMul", ["active", "square"], ["logits"], name="head/MatMul"),
    ]
    initializers = [onnx.numpy_helper.from_array(np.asarray(number), name) for name, number in constants.items()]
    shapes: dict[str, list[str | int | None]] = {"pixels": ["batch", 3, 8, 8], "logits": ["batch", 10]}
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = onnx.helper.make_graph(nodes, "plain", values[:1], values[1:], initializers)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    with writing_bundle(path) as draft:
        (draft.folder / "model.onnx").write_bytes(model.SerializeToString())
        draft.finish(
            lambda files: Manifest(
                name="plain",
                family="dot",
                config={},
                labels=tuple(map(str, range(10))),
                preprocessing=Preprocessing(size=(8, 8)),
                input=TensorSpec(name="pixels", dtype="float32", shape=("batch", 3, 8, 8)),
                output=TensorSpec(name="logits", dtype="float32", shape=("batch", 10)),
                max_batch=MAX_BATCH,
                opset=20,
                operators={},
                precision="int8" if quantized else "fp32",
                provenance=Provenance(
                    checkpoint="plain.safetensors",
                    checkpoint_sha256="0" * 64,
                    weights="raw",
                    tools={},
                    created=datetime(2026, 1, 1, tzinfo=UTC),
                ),
                files=files,
            )
        )


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`bundles(kind)`: an exported bundle, made once; `plain` and `int8` have no custom operator."""
    folder = tmp_path_factory.mktemp("engine-bundles")

    def make(kind: str) -> Path:
        path = folder / kind
        if not path.exists() and kind in ("plain", "int8"):
            write_plain(path, quantized=kind == "int8")
        elif not path.exists():
            config = CONFIGS[kind]
            torch.manual_seed(0)
            preprocessing = Preprocessing(size=config.image_size, mean=(0.5,) * 3, std=(0.25,) * 3)
            labels = tuple(f"kind {index}" for index in range(config.classes))
            checkpoint = Checkpoint(config, Classifier(config).eval().state_dict(), preprocessing, labels)
            write_checkpoint(folder / f"{kind}.safetensors", checkpoint)
            export_checkpoint(folder / f"{kind}.safetensors", path, max_batch=MAX_BATCH)
        return path

    return make


@pytest.fixture
def copied(bundles: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """`copied(kind)`: a bundle of the test's own."""

    def copy(kind: str) -> Path:
        return Path(shutil.copytree(bundles(kind), tmp_path / kind))

    return copy


@pytest.fixture
def engine_bundle(copied: Callable[[str], Path]) -> Path:
    return copied("plain")


@pytest.fixture
def engine_record() -> Callable[..., EngineRecord]:
    """`engine_record(bundle, **changes)`: writes an engine of no content into a bundle, as if it had been built."""

    def write(path: Path, **changes: Any) -> EngineRecord:
        fields: dict[str, Any] = {
            "builder": "tensorrt-rtx",
            "builder_version": "1.7.1.116",
            "architecture": 86,
            "precision": "fp32",
            "batches": (1, 8, 8),
            "model_sha256": open_bundle(path).manifest.model_sha256,
            "plugin_layers": 0,
        }
        record = EngineRecord.model_validate(fields | changes)
        with revising_bundle(path) as (draft, manifest):
            home = draft.folder / ENGINES_FOLDER / record.name
            home.mkdir(parents=True)
            for name in (ENGINE_FILE, CONTEXT_FILE, LAYERS_FILE):
                (home / name).write_bytes(name.encode())
            engines = {**manifest.engines, record.name: record}
            draft.finish(lambda files: manifest.model_copy(update={"engines": engines, "files": files}))
        return record

    return write


@pytest.fixture
def quick_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for one architecture stand for all: TensorRT, which has no GPU here, asks for their names and sizes only, and
    `tests/tensorrt` runs them."""
    pytest.importorskip("triton", reason="kernels are compiled by triton: pip install triton")
    from gaussport.export.engine import plugin_library
    from gaussport.plugins.tensorrt.attributes import plugin_attributes

    def one(*arguments: Any, **options: Any) -> Any:
        return plugin_attributes(*arguments, **options | {"architectures": [86], "every_tactic": False, "portable": False})

    monkeypatch.setattr(plugin_library, "plugin_attributes", one)
