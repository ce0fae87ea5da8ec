"""A classifier of bytes written by hand, which also streams, and the same in numpy.

A token counts by itself and by the one before it, so that order matters; the logits are the mean over the real tokens.
"""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from gaussport.export.bundle.manifest import FileRecord, Manifest, Provenance, TensorSpec
from gaussport.export.bundle.store import writing_bundle
from gaussport.export.bundle.stream import StreamSpec
from gaussport.models.text import Tokenization, windows

LABELS = ("ham", "spam", "eggs", "toast")
PAD, WINDOW = 256, 400
SPEC = Tokenization.of_bytes(WINDOW)

_HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
_MODEL = """tiny (int64[batch, length] tokens) => (float[batch, 4] logits) {
    padded = Pad (tokens, before, pad)
    previous = Slice (padded, zero, minus, axis)
    padding = Equal (tokens, pad)
    real = Not (padding)
    mask = Cast <to = 1> (real)
    a = Gather (single, tokens)
    b = Gather (double, previous)
    sum = Add (a, b)
    bent = Tanh (sum)
    column = Unsqueeze (mask, two)
    masked = Mul (bent, column)
    total = ReduceSum <keepdims = 0> (masked, axis)
    count = ReduceSum <keepdims = 1> (mask, axis)
    floor = Max (count, one)
    logits = Div (total, floor)
}"""


def _weights() -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(7)
    tables = {name: random.normal(0, 1.5, (PAD + 1, 4)).astype(np.float32) for name in ("single", "double")}
    tables["double"][PAD] = 0
    return tables


WEIGHTS = _weights()


def logits_of(document: bytes) -> NDArray[np.float64]:
    """The model in numpy, for one window."""
    tokens = np.frombuffer(document, np.uint8).astype(int)
    before = np.concatenate([[PAD], tokens[:-1]])
    bent = np.tanh(WEIGHTS["single"][tokens].astype(float) + WEIGHTS["double"][before])
    return np.asarray(bent.mean(axis=0))


def probabilities_of(document: bytes, spec: Tokenization = SPEC) -> NDArray[np.float64]:
    """Of a whole document, its windows joined by hand."""
    parts = windows(np.frombuffer(document, np.uint8).astype(np.int64), spec)
    each = [softmax(logits_of(bytes(part.astype(np.uint8)))) for part in parts]
    return np.asarray(np.average(each, axis=0, weights=[len(part) for part in parts]))


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def in_order(predictions: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """The probabilities of an answer by label."""
    found = np.full(len(LABELS), np.nan)
    for prediction in predictions:
        found[prediction["index"]] = prediction["probability"]
    return found


def _constants(graph: onnx.GraphProto, **arrays: Any) -> None:
    for name, array in arrays.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))


def _graph(text: str) -> onnx.ModelProto:
    model = parser.parse_model(_HEAD + text)
    one = np.array([1], np.int64)
    _constants(model.graph, **WEIGHTS, before=np.array([0, 1, 0, 0], np.int64), pad=np.array(PAD, np.int64))
    _constants(model.graph, zero=one - 1, minus=-one, axis=one, two=one + 1, one=np.array(1, np.float32))
    return model


def write_texts(
    destination: Path, name: str = "texts", spec: Tokenization = SPEC, streams: bool = True, beside: Sequence[Path] = ()
) -> Path:
    """Write the bundle; the files `beside` go into it."""
    stream = StreamSpec.of(
        (
            TensorSpec(name="count", dtype="int64", shape=("batch",)),
            TensorSpec(name="sum", dtype="float32", shape=("batch", 4)),
            TensorSpec(name="last", dtype="int64", shape=("batch", 1)),
        )
    )

    def manifest(files: dict[str, FileRecord]) -> Manifest:
        created = datetime(2026, 1, 1, tzinfo=UTC)
        return Manifest(
            name=name,
            family="module",
            config={},
            labels=LABELS,
            preprocessing=spec,
            input=TensorSpec(name="tokens", dtype="int64", shape=("batch", "length")),
            output=TensorSpec(name="logits", dtype="float32", shape=("batch", 4)),
            max_batch=8,
            opset=20,
            operators={},
            precision="fp32",
            provenance=Provenance(checkpoint="a", checkpoint_sha256="0" * 64, weights="raw", tools={}, created=created),
            stream=stream if streams else None,
            files=files,
        )

    destination.parent.mkdir(parents=True, exist_ok=True)
    with writing_bundle(destination) as draft:
        (draft.folder / "model.onnx").write_bytes(_graph(_MODEL).SerializeToString())
        for path in beside:
            shutil.copy(path, draft.folder)
        if streams:
            (draft.folder / "step.onnx").write_bytes(step_model().SerializeToString())
        draft.finish(manifest)
    return destination


def step_model() -> onnx.ModelProto:
    """The model for streams, its state the count, the sum and one more than the last token."""
    helper, T, info = onnx.helper, onnx.TensorProto, onnx.helper.make_tensor_value_info
    tokens = info("tokens", T.INT64, ["batch", "chunk"])
    state: list[tuple[str, int, list[str | int]]] = [
        ("count", T.INT64, ["batch"]),
        ("sum", T.FLOAT, ["batch", 4]),
        ("last", T.INT64, ["batch", 1]),
    ]
    node = helper.make_node
    nodes = [
        node("Equal", ["state.last", "zero"], ["fresh"]),
        node("Sub", ["state.last", "axis"], ["was"]),
        node("Where", ["fresh", "pad", "was"], ["known"]),
        node("Concat", ["known", "tokens"], ["joined"], axis=1),
        node("Slice", ["joined", "zero", "minus", "axis"], ["previous"]),
        node("Equal", ["tokens", "pad"], ["padding"]),
        node("Not", ["padding"], ["real"]),
        node("Cast", ["real"], ["mask"], to=T.FLOAT),
        node("Cast", ["real"], ["ones"], to=T.INT64),
        node("Gather", ["single", "tokens"], ["a"]),
        node("Gather", ["double", "previous"], ["b"]),
        node("Add", ["a", "b"], ["ab"]),
        node("Tanh", ["ab"], ["bent"]),
        node("Unsqueeze", ["mask", "two"], ["column"]),
        node("Mul", ["bent", "column"], ["masked"]),
        node("ReduceSum", ["masked", "axis"], ["more"], keepdims=0),
        node("Add", ["state.sum", "more"], ["next.sum"]),
        node("ReduceSum", ["ones", "axis"], ["new"], keepdims=0),
        node("Add", ["state.count", "new"], ["next.count"]),
        node("Unsqueeze", ["new", "axis"], ["at"]),
        node("Add", ["tokens", "axis"], ["above"]),
        node("Concat", ["state.last", "above"], ["chain"], axis=1),
        node("GatherElements", ["chain", "at"], ["next.last"], axis=1),
        node("Cast", ["next.count"], ["counted"], to=T.FLOAT),
        node("Max", ["counted", "one"], ["floor"]),
        node("Unsqueeze", ["floor", "axis"], ["below"]),
        node("Div", ["next.sum", "below"], ["logits"]),
    ]
    inputs = [tokens, *(info(f"state.{part}", kind, shape) for part, kind, shape in state)]
    outputs = [info("logits", T.FLOAT, ["batch", 4]), *(info(f"next.{part}", kind, shape) for part, kind, shape in state)]
    model = _graph(_MODEL)
    graph = helper.make_graph(nodes, "step", inputs, outputs, list(model.graph.initializer))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
