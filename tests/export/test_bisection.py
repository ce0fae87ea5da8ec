"""When a model answers wrongly, verify names the first layer that goes astray and what in it is to blame."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper

from gaussport.export.model_file import ModelFile, serialize
from gaussport.export.verification.bisection import Departure, first_departure
from gaussport.export.verification.suspects import difference, suspects

Exports = Callable[[str], Any]
EACH = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _search(exported: Any, model: onnx.ModelProto, fresh: bool = True) -> tuple[Departure | None, list[str]]:
    file, inputs = ModelFile(serialize(model)), {"pixels": exported.pixels(2)}
    departure = first_departure(exported.module, model, file, inputs)
    if departure is None:
        return None, []
    parameters = {name: tensor.numpy() for name, tensor in exported.module.state_dict().items()}
    return departure, suspects(departure, model, file, parameters, exported.model if fresh else None, inputs)


def _copy(exported: Any) -> onnx.ModelProto:
    return onnx.load_model_from_string(exported.data)


def _weight(model: onnx.ModelProto, name: str) -> TensorProto:
    found: TensorProto = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    return found


def _set(tensor: TensorProto, values: np.ndarray[Any, Any]) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), tensor.name))


def test_in_a_good_model_every_layer_agrees(exported: Any) -> None:
    departure, _ = _search(exported, _copy(exported))
    assert departure is None


def test_every_layer_is_compared(exports: Exports) -> None:
    """A layer that the graph does not name would never be blamed."""
    exported = exports("ssog")
    model = _copy(exported)
    _set(_weight(model, "head.bias"), np.full(10, 1e3, np.float32))
    departure, _ = _search(exported, model)
    assert departure is not None
    assert departure.layer == "head"
    modules = {name for name, part in exported.module.named_modules() if name and not list(part.children())}
    assert modules - set(departure.agreeing) == {"head"}
    operands = {f"blocks.{n}.attn, {name}" for n in (0, 1) for name in ("value", "offset", "width", "weight")}
    assert operands <= set(departure.agreeing)


@EACH
@given(data=st.data())
def test_a_changed_weight_is_found_in_its_layer(exports: Exports, data: st.DataObject) -> None:
    exported = exports(data.draw(st.sampled_from(["ssog", "gma", "dot"]), "model"))
    model = _copy(exported)
    matrices = [t.name for t in model.graph.initializer if t.name.endswith(".weight.T")]
    name = data.draw(st.sampled_from(matrices), "weight")
    how = data.draw(st.sampled_from(["negated", "nudged", "float16"]), "change")
    values = numpy_helper.to_array(_weight(model, name)).copy()
    if how == "negated":
        values.flat[np.abs(values).argmax()] *= -1
    elif how == "nudged":
        values *= np.float32(1.001)
    else:
        values = values.astype(np.float16).astype(np.float32)
    _set(_weight(model, name), values)
    departure, blamed = _search(exported, model)
    assert departure is not None
    assert departure.layer == name.removesuffix(".weight.T")
    words = {"negated": "by their sign", "nudged": "by up to", "float16": "rounded to float16"}[how]
    assert blamed[0].startswith(f"the weight {name} is not the checkpoint's: ")
    assert words in blamed[0]


def test_a_transposed_weight_is_found(exports: Exports) -> None:
    exported, name = exports("dot"), "blocks.1.attn.k.weight.T"
    model = _copy(exported)
    _set(_weight(model, name), numpy_helper.to_array(_weight(model, name)).T)
    departure, blamed = _search(exported, model)
    assert departure is not None
    assert departure.layer == "blocks.1.attn.k"
    assert "it is transposed" in blamed[0]


def _insert_cast(model: onnx.ModelProto, value: str, to: int) -> None:
    """Everyone who reads `value` reads it through a half."""
    index = next(n for n, node in enumerate(model.graph.node) if value in node.output)
    for node in model.graph.node:
        node.input[:] = [f"{value}.back" if name == value else name for name in node.input]
    casts = [
        onnx.helper.make_node("Cast", [value], [f"{value}.half"], f"{value}/to half", to=to),
        onnx.helper.make_node("Cast", [f"{value}.half"], [f"{value}.back"], f"{value}/back", to=TensorProto.FLOAT),
    ]
    for offset, cast in enumerate(casts, start=1):
        model.graph.node.insert(index + offset, cast)


def test_a_cast_that_rounds_is_found(exports: Exports) -> None:
    exported = exports("gma")
    model = _copy(exported)
    value = next(node.output[0] for node in model.graph.node if node.name.startswith("blocks.1.norm2/"))
    _insert_cast(model, value, TensorProto.FLOAT16)
    departure, blamed = _search(exported, model)
    assert departure is not None
    assert departure.layer == "blocks.1.mlp.0"
    assert blamed[0].startswith(f"the cast {value}/to half to float16 changes numbers by up to ")


def test_a_cast_that_overflows_is_found(exports: Exports) -> None:
    exported = exports("gma")
    model = _copy(exported)
    scaled = "blocks.0.norm1.weight"
    _set(_weight(model, scaled), numpy_helper.to_array(_weight(model, scaled)) * np.float32(1e6))
    with_large_norm = _with_parameter(exported, scaled, 1e6)
    value = next(node.output[0] for node in model.graph.node if node.name.startswith("blocks.0.norm1/"))
    _insert_cast(model, value, TensorProto.FLOAT16)
    file, inputs = ModelFile(serialize(model)), {"pixels": exported.pixels(2)}
    departure = first_departure(with_large_norm, model, file, inputs)
    assert departure is not None
    assert departure.not_finite
    parameters = {name: tensor.numpy() for name, tensor in with_large_norm.state_dict().items()}
    blamed = suspects(departure, model, file, parameters, None, inputs)
    assert "to float16 overflows in " in blamed[0]
    assert "float16 ends at 6.55e+04" in blamed[0]


def _with_parameter(exported: Any, name: str, factor: float) -> Any:
    import copy

    module = copy.deepcopy(exported.module)
    parameter = module.get_parameter(name)
    parameter.data.mul_(factor)
    return module


def test_swapped_operands_are_found(exports: Exports) -> None:
    exported = exports("ssog")
    model = _copy(exported)
    node = next(node for node in model.graph.node if node.name == "blocks.1.attn")
    node.input[1], node.input[2] = node.input[2], node.input[1]
    departure, blamed = _search(exported, model)
    assert departure is not None
    assert departure.layer == "blocks.1.attn, offset"
    assert blamed == [
        f"blocks.1.attn reads ({', '.join(node.input)}), in a new export ({_original_inputs(exported, 'blocks.1.attn')})"
    ]


def _original_inputs(exported: Any, name: str) -> str:
    return ", ".join(next(node.input for node in exported.model.graph.node if node.name == name))


@pytest.mark.parametrize("kind", ["ssog fixed", "gma"])
def test_a_constant_that_was_computed_from_weights_is_found(exports: Exports, kind: str) -> None:
    exported = exports(kind)
    model = _copy(exported)
    known = exported.module.state_dict()
    node = next(node for node in model.graph.node if node.name == "blocks.1.attn")
    constants = {t.name: t for t in model.graph.initializer if t.name.removesuffix(".T") not in known}
    name = next(value for value in node.input if value in constants)
    _set(constants[name], numpy_helper.to_array(constants[name]) * np.float32(1.25))
    departure, blamed = _search(exported, model)
    assert departure is not None
    assert departure.layer.startswith("blocks.1.attn, ")
    assert blamed[0].startswith(f"the constant {name} is not what the checkpoint's weights give: ")


def test_another_attribute_is_found(exports: Exports) -> None:
    exported = exports("gma")
    model = _copy(exported)
    node = next(node for node in model.graph.node if node.name == "norm/LayerNormalization")
    next(attribute for attribute in node.attribute if attribute.name == "epsilon").f = 0.5
    departure, blamed = _search(exported, model)
    assert departure is not None
    assert (departure.layer, blamed) == ("norm", ["norm/LayerNormalization has another epsilon than in a new export"])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_negated_number_is_seen_in_every_precision(kind: int) -> None:
    """Below the tolerance of a narrow type a wrong weight may hide; its own number tells."""
    weight = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    stored = weight.astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    assert difference(stored, weight) is None
    stored[1, 2] *= -1
    assert difference(stored, weight) == "1 of 24 numbers differ, by their sign"
    stored[1, 2] = np.nan
    assert difference(stored, weight) == "1 of 24 numbers differ, some are NaN or infinite"
