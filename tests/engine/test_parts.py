"""The parts of the engine builder that need no TensorRT: graph, layers, shapes, progress, and adding to a bundle."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from gaussport.errors import BundleError, EngineError
from gaussport.export.bundle.engines import EngineRecord
from gaussport.export.bundle.revision import revising_bundle
from gaussport.export.bundle.store import open_bundle
from gaussport.export.engine.graph import plugin_nodes, prepare_graph
from gaussport.export.engine.layers import Layer, check_plugins, check_precision
from gaussport.export.engine.log import Messages
from gaussport.export.engine.monitor import Interruption, progress_monitor
from gaussport.export.engine.network import check_shapes
from gaussport.export.model_file import serialize
from gaussport.export.passes import keep_bodies
from gaussport.export.session import Session


def model_of(path: Path) -> onnx.ModelProto:
    return onnx.load(path / "model.onnx")


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 2e-2)])
@pytest.mark.parametrize("kind", ["ssog", "gma"])
def test_the_prepared_graph_answers_as_the_bundle_does(
    bundles: Callable[[str], Path], kind: str, precision: str, tolerance: float
) -> None:
    bundle = open_bundle(bundles(kind))
    pixels = np.random.default_rng(0).standard_normal((3, *bundle.manifest.preprocessing.tensor_shape), dtype=np.float32)
    prepared = prepare_graph(model_of(bundle.path), "fp32", precision, plugins=True)
    assert not prepared.functions
    expected = Session(bundle.read("model.onnx")).run(pixels)
    found = Session(serialize(keep_bodies(prepared))).run(pixels)
    np.testing.assert_allclose(found, expected, atol=tolerance * float(np.abs(expected).max()))


def test_custom_nodes_are_tagged_and_typed(bundles: Callable[[str], Path]) -> None:
    prepared = prepare_graph(model_of(bundles("ssog")), "fp32", "bf16", plugins=True)
    (first, second) = plugin_nodes(prepared)
    assert (first.name, first.operator, first.dtype) == ("blocks.0.attn", "SeparableGaussianFilter", "bfloat16")
    assert first.shapes[0] == ("batch", 3, 5, 2, 16)
    assert second.mask_dtype is None
    tags = [
        {a.name: a.s.decode() for a in node.attribute if a.name.startswith("plugin_")}
        for node in prepared.graph.node
        if node.domain == "gaussport"
    ]
    assert tags == [{"plugin_namespace": "gaussport", "plugin_version": "1"}] * 2


def test_equal_constants_are_stored_once(bundles: Callable[[str], Path]) -> None:
    prepared = prepare_graph(model_of(bundles("gma")), "fp32", "fp16", plugins=True)
    stored = [(t.data_type, tuple(t.dims), t.raw_data) for t in prepared.graph.initializer]
    assert len(stored) == len(set(stored))
    assert any(t.data_type == TensorProto.FLOAT16 for t in prepared.graph.initializer)


def layer(name: str, kind: str, precision: str = "fp32") -> Layer:
    return Layer(name, kind, precision, kind == "PLUGIN_V3", (-1, 4))


def test_layers_that_are_not_what_was_asked_for_are_refused() -> None:
    good = [layer("a", "PLUGIN_V3", "fp16"), layer("b", "MATRIX_MULTIPLY", "fp16")]
    check_plugins(good, ["a"])
    check_precision(good, "fp16")
    with pytest.raises(EngineError, match="made b into MATRIX_MULTIPLY instead of a plugin"):
        check_plugins(good, ["a", "b"])
    with pytest.raises(EngineError, match="took a plugin for a, which is no operator of ours"):
        check_plugins(good, [])
    with pytest.raises(EngineError, match="bf16 was asked for but the layers that TensorRT made of the graph are 2 fp16"):
        check_precision(good, "bf16")
    with pytest.raises(EngineError, match="int8 was asked for"):  # quantized somewhere, but no product of integers
        check_precision([layer("q", "QUANTIZE", "int8"), layer("m", "MATRIX_MULTIPLY")], "int8")


@dataclass
class FakeTensor:
    """A network's tensor whose shape follows another's batch, except at one size."""

    shape: tuple[int, ...]
    follows: "FakeTensor | None" = None
    wrong_at: int = -1

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        followed = object.__getattribute__(self, "follows")
        if name != "shape" or followed is None:
            return value
        batch = followed.shape[0]
        return (batch + 1 if batch == object.__getattribute__(self, "wrong_at") else batch, *value[1:])


@pytest.mark.parametrize("wrong_at", [-2, 7])
def test_a_wrong_output_shape_at_any_batch_is_an_error(wrong_at: int) -> None:
    pixels = FakeTensor((-1, 3, 8, 8))
    logits = FakeTensor((-1, 10), pixels, wrong_at)
    beside = FakeTensor((-1, 5))
    network = SimpleNamespace(num_inputs=2, get_input=[pixels, beside].__getitem__, get_output=lambda _: logits)
    if wrong_at < 0:
        check_shapes(network, range(1, 9))
    else:
        with pytest.raises(EngineError, match=r"at batch 7 TensorRT infers an output of \[8, 10\] instead of \[7, 10\]"):
            check_shapes(network, range(1, 9))
    assert (pixels.shape, beside.shape) == ((-1, 3, 8, 8), (-1, 5))


def test_the_last_error_is_the_reason(tmp_path: Path) -> None:
    messages = Messages(tmp_path / "log")
    assert messages.reason == "TensorRT gave no reason"
    for severity, text in (("ERROR", "first\n  thing"), ("WARNING", "careful"), ("INTERNAL_ERROR", "last"), ("INFO", "x")):
        messages.add(severity, text)
    assert (messages.errors, messages.warnings, messages.reason) == (["first thing", "last"], ["careful"], "last")
    messages.close()
    assert (tmp_path / "log").read_text().splitlines()[0] == "ERROR first thing"


@dataclass
class FakeTRT:
    class IProgressMonitor:
        def __init__(self) -> None: ...

    phases: list[str] = field(default_factory=list)


def test_ctrl_c_is_heard_at_the_next_step() -> None:
    interruption = Interruption()
    before = signal.getsignal(signal.SIGINT)
    with interruption.listening(), progress_monitor(FakeTRT, interruption) as monitor:
        monitor.phase_start("Building", None, 3)
        monitor.phase_start("Tactics", "Building", 2)
        assert monitor.step_complete("Tactics", 0) is True
        signal.raise_signal(signal.SIGINT)
        assert monitor.step_complete("Tactics", 1) is False
        monitor.phase_finish("Tactics")
        monitor.phase_finish("Building")
        monitor.step_complete("forgotten", 0)
    assert signal.getsignal(signal.SIGINT) == before


def test_two_writers_of_one_bundle_take_turns(
    engine_record: Callable[..., EngineRecord], engine_bundle: Path, tmp_path: Path
) -> None:
    for architecture in (86, 89):
        engine_record(engine_bundle, architecture=architecture)
    assert len(open_bundle(engine_bundle).manifest.engines) == 2
    (engine_bundle / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(BundleError), revising_bundle(engine_bundle):
        pytest.fail("a damaged bundle was revised")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
