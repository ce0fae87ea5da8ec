"""A bundle written by hand whose model reads a vector, an index and a mask beside its pictures, and the model in numpy."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from gaussport.export.bundle.manifest import FileRecord, FurtherInput, Manifest, Provenance, TensorSpec
from gaussport.export.bundle.store import writing_bundle
from gaussport.models.image.preprocess import Preprocessing

SPECS = {
    "metadata": FurtherInput(name="metadata", dtype="float32", shape=("batch", 2, 2), low=-1, high=3),
    "kind": FurtherInput(name="kind", dtype="int64", shape=("batch",), low=1, high=6),
    "keep": FurtherInput(name="keep", dtype="bool", shape=("batch", 1), low=0, high=1),
}
PICTURES = Preprocessing(size=(4, 4))
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}
RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "picture": RANDOM.normal(0, 0.2, (48, 5)).astype(np.float32),
    "vector": RANDOM.normal(0, 1, (4, 5)).astype(np.float32),
    "table": RANDOM.normal(0, 1, (7, 5)).astype(np.float32),
}


def expected(inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The model in numpy."""
    rows = len(inputs["pixels"])
    x = inputs["pixels"].reshape(rows, -1).astype(float) @ WEIGHTS["picture"]
    x = x + inputs["metadata"].reshape(rows, -1).astype(float) @ WEIGHTS["vector"] + WEIGHTS["table"][inputs["kind"]]
    return np.asarray(np.where(inputs["keep"], x, -x))


def random_inputs(rows: int, seed: int) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(seed)
    return {
        "pixels": random.standard_normal((rows, 3, 4, 4), dtype=np.float32),
        "metadata": random.uniform(-1, 3, (rows, 2, 2)).astype(np.float32),
        "kind": random.integers(1, 7, rows),
        "keep": random.random((rows, 1)) < 0.5,
    }


def write_several(destination: Path) -> Path:
    nodes = [
        helper.make_node("Flatten", ["pixels"], ["flat"]),
        helper.make_node("MatMul", ["flat", "picture"], ["a"]),
        helper.make_node("Flatten", ["metadata"], ["line"]),
        helper.make_node("MatMul", ["line", "vector"], ["b"]),
        helper.make_node("Gather", ["table", "kind"], ["c"]),
        helper.make_node("Sum", ["a", "b", "c"], ["x"]),
        helper.make_node("Neg", ["x"], ["minus"]),
        helper.make_node("Where", ["keep", "x", "minus"], ["logits"]),
    ]
    first = TensorSpec(name="pixels", dtype="float32", shape=("batch", 3, 4, 4))
    inputs = [helper.make_tensor_value_info(s.name, TYPES[s.dtype], list(s.shape)) for s in (first, *SPECS.values())]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 5])
    weights = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = helper.make_graph(nodes, "several", inputs, [output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def manifest(files: dict[str, FileRecord]) -> Manifest:
        created = datetime(2026, 1, 1, tzinfo=UTC)
        return Manifest(
            name="several",
            family="module",
            config={},
            labels=tuple("abcde"),
            preprocessing=PICTURES,
            input=first,
            further_inputs=tuple(SPECS.values()),
            output=TensorSpec(name="logits", dtype="float32", shape=("batch", 5)),
            max_batch=8,
            opset=20,
            operators={},
            precision="fp32",
            provenance=Provenance(checkpoint="a", checkpoint_sha256="0" * 64, weights="raw", tools={}, created=created),
            files=files,
        )

    with writing_bundle(destination) as draft:
        (draft.folder / "model.onnx").write_bytes(model.SerializeToString())
        draft.finish(manifest)
    return destination
