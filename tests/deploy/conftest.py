"""A small bundle, written by hand, and the commands that deploy it."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest

from gaussport.export.bundle.manifest import FileRecord, Manifest, Provenance, TensorSpec
from gaussport.export.bundle.store import writing_bundle
from gaussport.models.image.preprocess import Preprocessing

SIDE, LABELS = 8, ("cat", "dog", "owl")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a linear classifier of 8×8 RGB pictures."""
    return write(tmp_path_factory.mktemp("bundles") / "tiny")


def write(destination: Path, precision: Literal["fp32", "bf16"] = "fp32") -> Path:
    weights = np.random.default_rng(0).normal(size=(3 * SIDE * SIDE, len(LABELS))).astype(np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Flatten", ["pixels"], ["flat"]), onnx.helper.make_node("MatMul", ["flat", "w"], ["logits"])],
        "tiny",
        [onnx.helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", len(LABELS)])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)

    def manifest(files: dict[str, FileRecord]) -> Manifest:
        return Manifest(
            name="tiny",
            family="dot",
            config={},
            labels=LABELS,
            preprocessing=Preprocessing(size=(SIDE, SIDE)),
            input=TensorSpec(name="pixels", dtype="float32", shape=("batch", 3, SIDE, SIDE)),
            output=TensorSpec(name="logits", dtype="float32", shape=("batch", len(LABELS))),
            max_batch=8,
            opset=20,
            operators={},
            precision=precision,
            provenance=Provenance(
                checkpoint="none",
                checkpoint_sha256="0" * 64,
                weights="plain",
                created=datetime(2026, 1, 1, tzinfo=UTC),
                tools={},
            ),
            files=files,
        )

    with writing_bundle(destination) as draft:
        (draft.folder / "model.onnx").write_bytes(model.SerializeToString())
        draft.finish(manifest)
    return destination


def gaussport(*words: str | Path, python: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command; `python` is a folder to take the package from."""
    where = [] if python is None else ["-P"]
    environment = None if python is None else {"PYTHONPATH": str(python), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, *where, "-m", "gaussport", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)
