"""int8: linear layers alone, symmetric, per channel; what a builder reads from the graph is what the numbers are."""

import numpy as np
import onnx
import onnx.checker
import onnx_graphsurgeon as gs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, numpy_helper

from gaussport.export.calibration.ranges import measured_ranges
from gaussport.export.passes import operate
from gaussport.export.precision.census import census, precision_of
from gaussport.export.precision.emulation import value_types
from gaussport.export.precision.quantization import quantizable, quantize, scales_of
from gaussport.export.progress import unwatched
from gaussport.onnx_runtime import onnxruntime
from gaussport.plugins import DOMAIN
from tests.precision.subjects import Zoo, run


def quantized(zoo: Zoo, keep: frozenset[str] = frozenset()) -> onnx.ModelProto:
    names = sorted({node.inputs[0].name for node in quantizable(gs.import_onnx(zoo.model)).values()})
    ranges = measured_ranges(zoo.model, names, zoo.calibration, "percentile", unwatched)
    return operate(zoo.model, lambda graph: quantize(graph, ranges, keep))


def test_zoo_loses_at_most_half_a_point(each: Zoo) -> None:
    answers = run(quantized(each), each.digits).argmax(-1)
    drop = np.mean(each.logits.argmax(-1) == each.targets) - np.mean(answers == each.targets)
    assert 100 * drop <= 0.5
    assert np.mean(answers == each.logits.argmax(-1)) >= 0.99


def test_linear_layers_are_integers_and_nothing_else_is(each: Zoo) -> None:
    model = quantized(each)
    onnx.checker.check_model(model, full_check=True)
    types = value_types(model)
    makers = {name: node for node in model.graph.node for name in node.output}
    linear = [node for node in model.graph.node if node.op_type == "MatMul"]
    assert "patch_embed/MatMul" in {node.name for node in linear}
    for node in linear:
        value, weight = (makers[name] for name in node.input)
        assert value.op_type == weight.op_type == "DequantizeLinear", node.name
        assert types[value.input[0]] == types[weight.input[0]] == TensorProto.INT8
    for node in model.graph.node:
        if node.domain == DOMAIN or node.op_type in ("Gemm", "LayerNormalization", "Softmax"):
            assert all(makers[n].op_type != "DequantizeLinear" for n in node.input if n in makers), node.name
    assert precision_of(model) == "int8"
    assert census(model)["int8"] == len(linear)


def test_zero_points_are_zero_and_weights_lie_within_half_a_step(ssog: Zoo) -> None:
    tensors = {t.name: numpy_helper.to_array(t) for t in quantized(ssog).graph.initializer}
    original = {t.name: numpy_helper.to_array(t) for t in ssog.model.graph.initializer}
    weights = [name for name in tensors if name.endswith(".weight.T.int8")]
    assert len(weights) == 29
    for name in weights:
        base = name.removesuffix(".int8")
        scales = tensors[f"{base}.scales"]
        assert scales.shape == (original[base].shape[1],)
        assert not tensors[f"{base}.zeros"].any()
        error = np.abs(tensors[name] * scales - original[base])
        assert (error <= 0.501 * scales).all()
    assert not tensors["int8.zero"].any()


def test_every_integer_layer_runs_as_one_in_onnx_runtime(ssog: Zoo, tmp_path: object) -> None:
    """A pair that layers share is fused into none of them: they would multiply floats."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = f"{tmp_path}/optimized.onnx"
    options.log_severity_level = 4
    onnxruntime.InferenceSession(quantized(ssog).SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(options.optimized_model_filepath)
    assert sum(node.op_type == "MatMulIntegerToFloat" for node in optimized.graph.node) == 29


def test_kept_layers_stay_as_they_were(ssog: Zoo) -> None:
    keep = frozenset({"patch_embed", "blocks.0.mlp.0"})
    model = quantized(ssog, keep)
    untouched = {node.name: list(node.input) for node in ssog.model.graph.node}
    for node in model.graph.node:
        if node.op_type == "MatMul":
            assert (list(node.input) == untouched[node.name]) == (node.name.split("/")[0] in keep)


@given(arrays(np.float32, (3, 4), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_scales_cover_every_channel(weight: np.ndarray) -> None:
    for axis in (0, 1):
        scales = scales_of(weight, axis)
        assert (scales > 0).all()
        reach = 127 * scales.astype(np.float64)
        assert (np.abs(weight).max(axis=1 - axis) <= reach * (1 + 1e-6)).all()


@pytest.mark.parametrize("level", [0.0, 1e-30])
def test_a_tensor_that_is_always_zero_has_a_scale(ssog: Zoo, level: float) -> None:
    names = {node.inputs[0].name for node in quantizable(gs.import_onnx(ssog.model)).values()}
    model = operate(ssog.model, lambda graph: quantize(graph, dict.fromkeys(names, level)))
    assert np.isfinite(run(model, ssog.digits[:2])).all()
