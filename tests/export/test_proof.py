"""A proof passes good models of any scale, and nothing else: no NaN, no wrong weight, no wrong shape."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakSet

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from gaussport.errors import ExportError, ProofError
from gaussport.export.comparison import compare
from gaussport.export.model_file import ModelFile, serialize
from gaussport.export.onnx_export import export_onnx, pictures_of
from gaussport.export.probes import Probes, batch_sizes
from gaussport.export.proof import Proof, Runs, prove, prove_runners, sessions, sessions_in_turns
from gaussport.export.report import report_json, report_markdown, summary
from gaussport.export.session import Session
from gaussport.export.tolerance import CEILINGS, FLOORS, tolerance_for
from gaussport.models.image.preprocess import Preprocessing

GREY = Probes((1, 2, 3), np.array([-1], np.float32), np.array([1], np.float32))


class _Linear(nn.Module):
    """Logits of any scale."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        with torch.no_grad():
            self.layer.weight.copy_(torch.linspace(-1, 1, 24).view(4, 6) * scale)
            self.layer.bias.copy_(torch.tensor([0.1, -0.2, 0.3, 0.05]) * scale)

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(pixels.flatten(1)))


@cache
def _exported(scale: float) -> bytes:
    return serialize(export_onnx(_Linear(scale), [pictures_of((1, 2, 3))]))


def _proof(scale: float = 1.0, change: Callable[[onnx.ModelProto], object] = lambda model: None) -> Proof:
    model = onnx.load_model_from_string(_exported(scale))
    change(model)
    return prove(_Linear(scale), serialize(model), GREY, max_batch=9)


def _negate_largest_weight(model: onnx.ModelProto) -> None:
    """Of all stored numbers, the one of largest magnitude changes its sign."""
    floats = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and t.dims]
    largest = max(floats, key=lambda tensor: float(np.abs(numpy_helper.to_array(tensor)).max()))
    values = numpy_helper.to_array(largest).copy()
    values.flat[np.abs(values).argmax()] *= -1
    largest.CopyFrom(numpy_helper.from_array(values, largest.name))


def test_every_batch_size_is_run_as_written_and_inlined() -> None:
    proof = _proof()
    proof.require()
    assert {(c.batch, c.subject) for c in proof.comparisons} == {
        (batch, subject) for batch in (1, 2, 3, 7, 9) for subject in ("as written", "inlined")
    }


@pytest.mark.parametrize(("runners_of", "most"), [(sessions, 2), (sessions_in_turns, 1)])
def test_in_turns_one_session_is_in_memory_at_a_time(
    runners_of: Callable[[bytes], dict[str, Runs]], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: WeakSet[Session] = WeakSet()
    seen = []

    class Counted(Session):
        def __init__(self, model: bytes | ModelFile) -> None:
            super().__init__(model)
            alive.add(self)
            seen.append(len(alive))

    monkeypatch.setattr("gaussport.export.proof.Session", Counted)
    proof = prove_runners(_Linear(), runners_of(_exported(1.0)), GREY.questions(9), "fp32")
    assert max(seen) == most
    assert len(seen) == len({c.subject for c in proof.comparisons}) == 2  # and none is made twice
    assert not alive  # without a collection of cycles: an export goes on without them
    assert proof.comparisons == _proof().comparisons


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, [1, 2, 3, 7]), (5, [1, 2, 3, 5, 7]), (7, [1, 2, 3, 7]), (32, [1, 2, 3, 7, 32])]
)
def test_batch_sizes_include_the_largest(largest: int, sizes: list[int]) -> None:
    assert batch_sizes(largest) == sizes


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_logits_of_any_scale_pass_and_a_negated_weight_fails(scale: float) -> None:
    proof = _proof(scale)
    proof.require()
    assert proof.tolerance.absolute == pytest.approx(FLOORS["fp32"] * proof.tolerance.scale)
    with pytest.raises(ProofError):
        _proof(scale, _negate_largest_weight).require()


def test_a_negated_weight_fails_in_a_real_model(exports: Callable[[str], Any]) -> None:
    exported = exports("gma causal")
    model = onnx.load_model_from_string(exported.data)
    _negate_largest_weight(model)
    low, high = np.full(3, -1, np.float32), np.full(3, 1, np.float32)
    with pytest.raises(ProofError):
        prove(exported.module, serialize(model), Probes(exported.shape, low, high), 7).require()


def test_the_error_names_batch_output_error_and_tolerance() -> None:
    with pytest.raises(ProofError) as caught:
        _proof(1.0, _negate_largest_weight).require()
    text = str(caught.value)
    for word in ("at batch 1", "logits", "differs from PyTorch's by", "2e-05 × the largest logit", "fp32"):
        assert word in text
    assert "\n" not in text


class _NotANumber(nn.Module):
    """0/0 for black pictures, a number for all others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, pixels: Tensor) -> Tensor:
        distance = (pixels + 1).abs().flatten(1).sum(1, keepdim=True)
        return torch.as_tensor(self.layer(pixels.flatten(1)) * distance / distance)


def test_a_nan_fails_although_pytorch_gives_it_too() -> None:
    module = _NotANumber()
    model = serialize(export_onnx(module, [pictures_of((1, 2, 3))]))
    with pytest.raises(ProofError, match=r"at batch 1 \(black\) \d+ numbers of logits.* NaN or infinite"):
        prove(module, model, GREY, max_batch=2).require()


def test_a_model_of_another_shape_is_refused(exports: Callable[[str], Any]) -> None:
    other = _exported(1.0)
    colour = Probes((3, 32, 32), np.full(3, -1, np.float32), np.full(3, 1, np.float32))
    module = exports("dot").module
    with pytest.raises(ExportError, match="ONNX Runtime fails at batch 1"):
        prove(module, other, colour, 2)


def test_what_onnx_runtime_refuses_is_an_error_of_one_line() -> None:
    with pytest.raises(ExportError, match=r"ONNX Runtime .* refuses the model") as caught:
        Session(b"no model")
    assert "\n" not in str(caught.value)


def test_comparison_beside_zero_has_a_finite_relative_error() -> None:
    expected = np.array([[0.0, 1.0]], np.float32)
    found = np.array([[1e-7, 1.0]], np.float32)
    assert compare("model", "probe", expected, found, scale=1.0).max_rel == pytest.approx(1e-4)
    assert compare("model", "probe", 0 * expected, 0 * found, scale=0.0).max_rel == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["expected", "found", "both"])
def test_what_is_not_finite_never_passes(bad: float, side: str) -> None:
    good, broken = np.zeros((1, 2), np.float32), np.array([[0, bad]], np.float32)
    expected, found = (broken if side in (name, "both") else good for name in ("expected", "found"))
    comparison = compare("model", "probe", expected, found, scale=1.0)
    assert comparison.not_finite > 0
    assert not comparison.within(np.inf)


def test_another_shape_never_passes() -> None:
    assert not compare("m", "p", np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32), 1.0).within(np.inf)


def test_tolerance_follows_the_models_own_rounding_up_to_a_ceiling() -> None:
    assert tolerance_for("fp32", scale=10.0).absolute == pytest.approx(2e-4)
    assert tolerance_for("fp32", scale=10.0, own_rounding=1e-3).absolute == pytest.approx(8e-3)
    assert tolerance_for("fp32", scale=10.0, own_rounding=1.0).absolute == pytest.approx(10 * CEILINGS["fp32"])
    assert "PyTorch's own rounding error" in tolerance_for("fp32", 10.0, 1e-3).reason


def test_probes_reach_the_edges_of_preprocessing_and_differ_by_row() -> None:
    preprocessing = Preprocessing(size=(2, 3), mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.5))
    ((_, inputs),) = Probes.of(preprocessing).batches(8)
    pixels = inputs["pixels"]
    assert pixels.shape == (8, 3, 2, 3)
    assert pixels.dtype == np.float32
    np.testing.assert_allclose(pixels[..., 0, 0].min(0), [-2, -2, -1.2], rtol=1e-6)
    assert len({row.tobytes() for row in pixels}) == 8
    alone = dict(Probes.of(preprocessing).batches(1))
    np.testing.assert_allclose(alone["white"]["pixels"][0, :, 0, 0], [3, 2, 0.8], rtol=1e-6)
    assert not alone["zeros"]["pixels"].any()


def test_probes_are_the_same_every_time() -> None:
    for (_, first), (_, second) in zip(GREY.batches(7), GREY.batches(7), strict=True):
        np.testing.assert_array_equal(first["pixels"], second["pixels"])


def test_the_report_says_what_was_compared() -> None:
    proof = _proof()
    graph = {"opset": 20, "custom nodes": {}}
    document = json.loads(report_json(proof, graph))
    assert document["tolerance"]["absolute"] == proof.tolerance.absolute
    assert len(document["comparisons"]) == len(proof.comparisons)
    page = report_markdown("grey", proof, graph)
    assert page.count("\n| 7 |") == 2
    assert all(row["top1_agreement"] == 1.0 for row in summary(proof))
