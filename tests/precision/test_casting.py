"""A narrow graph is strongly typed: what must stay float32 does, and every change of type is a Cast."""

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
import onnx_graphsurgeon as gs
import pytest
import torch
from onnx import TensorProto, numpy_helper
from torch import nn

from gaussport.errors import UsageError
from gaussport.export.onnx_export import export_onnx, pictures_of
from gaussport.export.passes import operate
from gaussport.export.precision.casting import narrow
from gaussport.export.precision.emulation import emulated, value_types
from gaussport.export.precision.formats import BF16, FP16, Format
from gaussport.export.precision.layers import RESIDUAL, check_possible, chosen, layers, named
from gaussport.export.precision.quantization import quantizable
from gaussport.export.precision.support import unsupported
from gaussport.models.attention.gma import GMAAttention, GMAConfig
from gaussport.models.classifier import Classifier
from gaussport.models.presets import preset
from gaussport.plugins import DOMAIN
from tests.precision.subjects import Zoo, run

FORMATS = pytest.mark.parametrize("format", [FP16, BF16], ids=lambda format: format.name)


def narrowed(model: onnx.ModelProto, format: Format, keep: frozenset[str] = frozenset()) -> onnx.ModelProto:
    return operate(model, lambda graph: narrow(graph, format, keep))


@FORMATS
def test_norms_softmax_fields_means_and_logits_stay_float32(each: Zoo, format: Format) -> None:
    model = narrowed(each.model, format)
    onnx.checker.check_model(model, full_check=True)  # with types strict: no operator mixes them
    types = value_types(model)
    wide = {"LayerNormalization", "Softmax", "Exp", "Tanh", "ReduceMean", "Mul", "Gemm"}
    for node in model.graph.node:
        if node.op_type in wide:
            assert {types[name] for name in node.input if name in types} <= {TensorProto.FLOAT, TensorProto.INT64}, node.name
    assert [types[value.name] for value in (*model.graph.input, *model.graph.output)] == [TensorProto.FLOAT] * 2


@FORMATS
def test_linear_layers_residual_and_operators_are_narrow(each: Zoo, format: Format) -> None:
    model = narrowed(each.model, format)
    types = value_types(model)
    narrow_nodes = [n for n in model.graph.node if n.op_type == "MatMul" or n.domain == DOMAIN]
    assert len(narrow_nodes) >= 25
    for node in narrow_nodes:
        assert {types[name] for name in (*node.input, *node.output)} == {format.onnx}, node.name
    before, after = (sum(len(t.raw_data) for t in m.graph.initializer) for m in (each.model, model))
    assert after < 0.6 * before


@FORMATS
def test_weights_keep_pytorch_names_and_are_the_rounded_numbers(each: Zoo, format: Format) -> None:
    original = {t.name: numpy_helper.to_array(t) for t in each.model.graph.initializer}
    stored = {t.name: numpy_helper.to_array(t) for t in narrowed(each.model, format).graph.initializer}
    assert stored.keys() == original.keys()
    for name, values in stored.items():
        assert np.array_equal(values, original[name].astype(values.dtype)), name


@FORMATS
def test_what_is_kept_is_float32_and_the_rest_is_not(ssog: Zoo, format: Format) -> None:
    known = list(layers(gs.import_onnx(ssog.model)))
    keep = frozenset(chosen(["blocks.1", RESIDUAL], known))
    model = narrowed(ssog.model, format, keep)
    onnx.checker.check_model(model, full_check=True)
    types = value_types(model)
    for node in model.graph.node:
        if node.op_type == "MatMul" or node.domain == DOMAIN:
            wide = node.name.startswith("blocks.1.")
            assert types[node.output[0]] == (TensorProto.FLOAT if wide else format.onnx), node.name


def test_keeping_every_layer_changes_nothing(each: Zoo) -> None:
    known = frozenset(layers(gs.import_onnx(each.model)))
    model = narrowed(each.model, FP16, known)
    assert not [node for node in model.graph.node if node.op_type == "Cast"]
    assert np.array_equal(run(model, each.digits[:8]), run(each.model, each.digits[:8]))


def test_an_unknown_layer_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"no layer 'blocks\.9' .* the model has blocks\.0\.attn\.v, head"):
        chosen(["blocks.9"], ["blocks.0.attn.v", "head"])
    assert chosen(["blocks.1"], ["blocks.1.mlp", "blocks.10.mlp"]) == {"blocks.1.mlp"}


class Twice(nn.Module):
    """Attention and linear layers used twice, under two names, or computed by the outermost module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.weight = nn.Linear(6, 6), nn.Parameter(torch.ones(6, 6))
        self.second = self.first
        self.attention = GMAAttention(GMAConfig(heads=2, components=3), 6)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = pixels[:, 0] @ self.weight
        x = self.attention(self.attention(x))
        answer: torch.Tensor = self.second(self.first(x)).mean(1)
        return answer


def test_no_layer_that_a_graph_has_is_refused_before_the_tracing(each: Zoo) -> None:
    torch.manual_seed(0)
    twice = Twice().eval()
    graphs = [(each.module, each.model), (twice, export_onnx(twice, [pictures_of((1, 4, 6))]))]
    for module, model in graphs:
        modules = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
        names = named(gs.import_onnx(model)) | {RESIDUAL}
        assert names - set(modules)
        check_possible(names, modules)
        for wrong in ("blocks.77", "block.0", "blocks.0.mlp.0/MatMul", "firs", "first_", "", " first"):
            with pytest.raises(UsageError, match=f"there is no layer '{wrong}' to keep in float32: the model has "):
                check_possible([wrong], modules)


def test_every_module_may_be_named_also_one_that_is_float32_anyway(each: Zoo) -> None:
    graph = gs.import_onnx(each.model)
    known, everything = list(layers(graph)), named(graph)
    modules = [name for name, module in each.module.named_modules() if name and any(True for _ in module.parameters())]
    assert {"head", "norm", "blocks", "blocks.0.norm1"} <= set(modules)
    for kinds in (known, list(quantizable(graph))):
        for name in [*modules, RESIDUAL]:
            inside = {layer for layer in kinds if f"{layer}.".startswith(f"{name}.")}
            assert chosen([name], kinds, everything) == inside
    with pytest.raises(UsageError, match="no layer 'hea'"):
        chosen(["hea"], known, everything)


@pytest.mark.parametrize(
    ("config", "opset"),
    [
        (preset("dot-tiny", depth=1), 18),  # softmax attention; GELU is five nodes before opset 20
        (preset("gma-tiny", depth=1, attention=GMAConfig(heads=2, components=8, causal=True)), 25),
    ],
    ids=["dot, opset 18", "causal gma, opset 25"],
)
def test_other_families_and_opsets_convert_too(config: object, opset: int) -> None:
    module = Classifier(config).eval()  # type: ignore[arg-type]
    model = export_onnx(module, [pictures_of((3, 32, 32))], opset)
    pixels = np.random.default_rng(0).standard_normal((3, 3, 32, 32), dtype=np.float32)
    expected = run(model, pixels)
    for format, tolerance in ((FP16, 2e-3), (BF16, 2e-2)):
        typed = narrowed(model, format)
        onnx.checker.check_model(typed, full_check=True)
        assert np.abs(run(emulated(typed), pixels) - expected).max() <= tolerance * np.abs(expected).max()


@FORMATS
@pytest.mark.parametrize("opset", [20, 22])
def test_a_convolution_that_onnx_does_not_define_stays_float32(format: Format, opset: int) -> None:
    """In bfloat16 ONNX has none before opset 22; a graph with one would fail its own checker."""
    module = nn.Sequential(nn.Conv2d(3, 4, 2, stride=2), nn.Flatten(), nn.Linear(64, 8), nn.GELU(), nn.Linear(8, 2))
    model = export_onnx(module, [pictures_of((3, 8, 8))], opset)
    kept = unsupported(model, format)
    if format is BF16 and opset == 20:
        assert kept == {"0": "ONNX has no Conv of bfloat16 in opset 20, and has it in 22: --opset 22"}
        with pytest.raises((onnx.checker.ValidationError, onnx.shape_inference.InferenceError)):
            onnx.checker.check_model(narrowed(model, format), full_check=True)
    else:
        assert kept == {}
    onnx.checker.check_model(narrowed(model, format, frozenset(kept)), full_check=True)
