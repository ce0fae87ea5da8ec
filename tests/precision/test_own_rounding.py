"""The tolerance of a narrow model follows what rounding does to this model, told from the module: good exports pass and a
wrong weight does not."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from gaussport.errors import BundleError, ProofError
from gaussport.export.model_file import ModelFile, serialize
from gaussport.export.passes import operate
from gaussport.export.precision.casting import narrow
from gaussport.export.precision.emulation import emulated
from gaussport.export.precision.formats import FORMATS
from gaussport.export.precision.integer_twin import integer_twin
from gaussport.export.precision.own_rounding import rounding
from gaussport.export.precision.quantization import quantizable, quantize
from gaussport.export.proof import Proof, prove_integers, prove_runners
from gaussport.export.session import Session
from gaussport.export.tolerance import CEILINGS, FLOORS, LEAST, tolerance_for
from gaussport.export.verification.weights import weights_equal
from tests.precision.subjects import Zoo

PRECISIONS = ("fp32", "fp16", "bf16")
LOUDEST = {"mnist-ssog": "blocks.3.attn.mu", "mnist-gma": "blocks.3.mlp.0.weight.T"}
"""What has the largest number of all that is stored, and of the linear layers: in GMA the largest of all belongs to a
component that no token is near."""


def _in(zoo: Zoo, precision: str) -> onnx.ModelProto:
    if precision == "fp32":
        return onnx.load_model_from_string(serialize(zoo.model))
    return operate(zoo.model, lambda graph: narrow(graph, FORMATS[precision]))


def _proof(zoo: Zoo, model: onnx.ModelProto, precision: str) -> Proof:
    session = Session(serialize(model if precision == "fp32" else emulated(model)))
    return prove_runners(zoo.module, {"rounded": session}, zoo.probes.questions(7), precision)


def _largest(model: onnx.ModelProto, name: str) -> int:
    values = numpy_helper.to_array(next(tensor for tensor in model.graph.initializer if tensor.name == name))
    return int(np.abs(values.astype(np.float32)).argmax())


def _negate(model: onnx.ModelProto, name: str, index: int) -> float:
    """That number of the tensor changes its sign; its magnitude."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    values = numpy_helper.to_array(tensor).copy()
    values.flat[index] = -values.flat[index]
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    return float(np.abs(values.flat[index]))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_good_export_passes_and_a_negated_weight_does_not(each: Zoo, precision: str) -> None:
    model = _in(each, precision)
    good = _proof(each, model, precision)
    good.require()
    assert good.tolerance.absolute <= FLOORS[precision] * good.tolerance.scale
    name = LOUDEST[each.path.stem]
    _negate(model, name, _largest(each.model, name))
    with pytest.raises(ProofError, match=r"differs from PyTorch's by .* more than the tolerance"):
        _proof(each, model, precision).require()


def test_in_int8_a_negated_weight_fails_beside_the_same_integers(each: Zoo) -> None:
    """Beside float32 it would hide: clipping alone moves logits by more."""
    inputs = {node.inputs[0].name for node in quantizable(gs.import_onnx(each.model)).values()}
    model = operate(each.model, lambda graph: quantize(graph, dict.fromkeys(inputs, 4.0)))
    twin, questions = integer_twin(each.module, model), each.probes.questions(7)
    assert twin is not None
    prove_integers(twin, {"as written": Session(serialize(model))}, questions).require()
    name = LOUDEST[each.path.stem]
    stored = {tensor.name for tensor in model.graph.initializer}
    _negate(model, name if name in stored else f"{name}.int8", _largest(each.model, name))
    with pytest.raises(ProofError, match=r"differs from PyTorch in int8's by .* the same integers"):
        prove_integers(twin, {"as written": Session(serialize(model))}, questions).require()


def test_a_module_without_those_layers_has_no_twin(ssog: Zoo) -> None:
    inputs = {node.inputs[0].name for node in quantizable(gs.import_onnx(ssog.model)).values()}
    model = operate(ssog.model, lambda graph: quantize(graph, dict.fromkeys(inputs, 4.0)))
    assert integer_twin(nn.Linear(2, 2), model) is None
    assert integer_twin(nn.ModuleDict({"patch_embed": nn.Identity()}), model) is None


def test_what_no_answer_shows_the_stored_numbers_do(zoo: Any) -> None:
    """GMA's largest number of all is a mean that no token is near: negated, it moves no logit by more than float32 does."""
    gma: Zoo = zoo("mnist-gma")
    model = _in(gma, "fp32")
    stored = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and t.dims]
    name = "blocks.2.attn.mu"
    assert _negate(model, name, _largest(model, name)) == max(np.abs(numpy_helper.to_array(t)).max() for t in stored)
    _proof(gma, model, "fp32").require()
    subject: Any = SimpleNamespace(original=gma.checkpoint, model=model, file=ModelFile(b""))
    with pytest.raises(BundleError, match=r"blocks\.2\.attn\.mu is not mnist-gma\.safetensors's"):
        weights_equal(subject)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_module_rounds_as_much_as_its_export(each: Zoo, precision: str) -> None:
    proof = _proof(each, _in(each, precision), precision)
    assert proof.tolerance.own_rounding is not None
    assert 0.5 < proof.worst.max_abs / proof.tolerance.own_rounding < 2
    assert f"{precision})" in proof.tolerance.reason


class _Two(nn.Module):
    """A layer and a head, whose numbers float16 cannot show exactly."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            self.layer.weight.fill_(weight)
            self.head.weight.fill_(1 + 2**-20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.layer(x.flatten(1))))


def test_layers_round_and_the_head_does_not() -> None:
    x = torch.ones(1, 1, 1, 1)
    with torch.no_grad():
        module = _Two(1 + 2**-12)
        with rounding(module, (x,), "fp16"):
            answers = [module(x) for _ in range(2)]  # the head is found in every run
        assert [answer.item() for answer in answers] == [1 + 2**-20] * 2
        large = _Two(2.0**20)
        with rounding(large, (x,), "fp16"):
            assert large(x).item() == 2**20 + 1  # beyond float16 a layer stays float32, as in an export


def test_the_tolerance_says_what_it_was_made_from() -> None:
    assert tolerance_for("fp16", 10.0).absolute == pytest.approx(10 * FLOORS["fp16"])
    assert tolerance_for("fp16", 10.0, 1e-5).absolute == pytest.approx(10 * LEAST["fp16"])
    assert tolerance_for("bf16", 10.0, 0.1).absolute == pytest.approx(0.25)
    assert (
        tolerance_for("bf16", 10.0, 0.1).reason
        == "2.5e-01 = 2.5 × what rounding to bfloat16 changes in PyTorch, 1.0e-01 (bf16)"
    )
    capped = tolerance_for("bf16", 10.0, 5.0)
    assert capped.absolute == pytest.approx(10 * CEILINGS["bf16"])
    assert "the most that is ever allowed" in capped.reason
