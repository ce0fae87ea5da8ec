"""Each operator's ONNX bodies, alone in a model, in plain ONNX Runtime against the definition."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from gaussport.onnx_runtime import onnxruntime
from gaussport.plugins import DOMAIN, OPSET_VERSION
from gaussport.plugins.latent_memory_routing import onnx_tiled
from gaussport.plugins.latent_memory_routing import tolerances as routing_tolerances
from gaussport.plugins.latent_memory_routing.definition import latent_memory_routing
from gaussport.plugins.latent_memory_routing.memory_product import CHUNK
from gaussport.plugins.onnx_registry import attach_bodies, onnx_operators
from gaussport.plugins.separable_gaussian_filter import tolerances as filter_tolerances
from gaussport.plugins.separable_gaussian_filter.definition import separable_gaussian_filter
from gaussport.plugins.separable_gaussian_filter.torch_op import separable_gaussian_filter as torch_filter

Operands = Callable[..., tuple[Tensor, ...]]
OPSET, IR = 20, 10


def model_of(*nodes: onnx.NodeProto, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A model of custom nodes whose inputs are all dynamic, with their bodies attached."""
    operands = onnx_operators()[nodes[0].op_type].operator.operands
    ranks = {operand.name: len(operand.letters) for operand in operands}
    names = dict.fromkeys(name for node in nodes for name in node.input)
    inputs = [helper.make_tensor_value_info(n, kind, [f"{n}_{axis}" for axis in range(ranks[n])]) for n in names]
    outputs = [helper.make_tensor_value_info(node.output[0], kind, [None] * ranks[node.input[0]]) for node in nodes]
    graph = helper.make_graph(list(nodes), "operators", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    attach_bodies(model)
    return model


def filter_node() -> onnx.NodeProto:
    names = [operand.name for operand in onnx_operators()["SeparableGaussianFilter"].operator.operands]
    return helper.make_node("SeparableGaussianFilter", names, ["output"], domain=DOMAIN)


def routing_node(masked: bool, causal: bool, output: str = "output", epsilon: float = 1e-6) -> onnx.NodeProto:
    names = [operand.name for operand in onnx_operators()["LatentMemoryRouting"].operator.operands]
    names = names if masked else names[:-1]
    return helper.make_node("LatentMemoryRouting", names, [output], domain=DOMAIN, causal=int(causal), epsilon=epsilon)


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, operands: Sequence[Tensor]) -> list[NDArray[Any]]:
    names = [entry.name for entry in session.get_inputs()]
    outputs: list[NDArray[Any]] = session.run(None, dict(zip(names, (x.numpy() for x in operands), strict=True)))
    return outputs


@pytest.fixture(scope="module")
def filter_session() -> onnxruntime.InferenceSession:
    return session_of(model_of(filter_node()))


@pytest.fixture(scope="module", params=[(False, False), (False, True), (True, False), (True, True)])
def routing_session(request: pytest.FixtureRequest) -> tuple[onnxruntime.InferenceSession, bool, bool]:
    masked, causal = request.param
    return session_of(model_of(routing_node(masked, causal))), masked, causal


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    B=st.integers(1, 3),
    H=st.integers(1, 9),
    W=st.integers(1, 9),
    P=st.integers(1, 3),
    D=st.integers(1, 9),
    R=st.integers(1, 8),
    steered=st.booleans(),
    batched=st.booleans(),
    exponent=st.floats(-4, 4),
    reach=st.sampled_from([0.0, 2.0, 1e3]),
    seed=st.integers(0, 99),
)
def test_filter_body_equals_definition(
    filter_operands: Operands,
    filter_session: onnxruntime.InferenceSession,
    B: int,
    H: int,
    W: int,
    P: int,
    D: int,
    R: int,
    steered: bool,
    batched: bool,
    exponent: float,
    reach: float,
    seed: int,
) -> None:
    options = {"steered": steered, "batched": batched, "sigma": 10**exponent, "reach": reach, "seed": seed}
    operands = [x.float() for x in filter_operands(B, H, W, P, D, R, **options)]
    wanted = separable_gaussian_filter(*(x.double().numpy() for x in operands))
    assert np.abs(run(filter_session, operands)[0] - wanted).max() <= filter_tolerances.FLOAT32


@pytest.mark.parametrize("sigma", [1e-4, 1e-20, 1e-38])
def test_filter_body_takes_the_nearest_cell_at_zero_width(
    filter_operands: Operands, filter_session: onnxruntime.InferenceSession, sigma: float
) -> None:
    operands = [x.float() for x in filter_operands(1, 5, 4, 1, 2, 2, sigma=sigma)]
    wanted = separable_gaussian_filter(*(x.double().numpy() for x in operands))
    assert np.abs(run(filter_session, operands)[0] - wanted).max() <= filter_tolerances.FLOAT32


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    B=st.integers(1, 3),
    N=st.one_of(st.integers(1, 9), st.sampled_from([CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])),
    P=st.integers(1, 3),
    K=st.integers(1, 64),
    dr=st.integers(1, 9),
    dv=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_routing_bodies_equal_definition(
    routing_operands: Operands,
    routing_session: tuple[onnxruntime.InferenceSession, bool, bool],
    B: int,
    N: int,
    P: int,
    K: int,
    dr: int,
    dv: int,
    seed: int,
) -> None:
    session, masked, causal = routing_session
    operands = [x.float() for x in routing_operands(B, N, P, K, dr, dv, masked=masked, seed=seed)]
    wanted = latent_memory_routing(*(x.double().numpy() for x in operands), causal=causal)
    error = np.abs(run(session, operands)[0] - wanted).max() / operands[2].abs().max().item()
    assert error <= routing_tolerances.FLOAT32


def test_routing_bodies_equal_definition_for_mixtures_as_the_modules_make_them(
    routing_operands: Operands, routing_session: tuple[onnxruntime.InferenceSession, bool, bool]
) -> None:
    session, masked, causal = routing_session
    operands = list(routing_operands(2, 196, 2, 32, 16, 16, masked=masked, dtype=torch.float32))
    operands[4] = torch.full_like(operands[4], 0.6932)
    wanted = latent_memory_routing(*(x.double().numpy() for x in operands), causal=causal)
    error = np.abs(run(session, operands)[0] - wanted).max() / operands[2].abs().max().item()
    assert error <= routing_tolerances.FLOAT32_AS_MADE


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 999), variance=st.floats(-3, 1), reach=st.floats(-1, 1.5), distance=st.sampled_from([0.0, 100.0]))
def test_error_of_routing_bodies_is_bounded_by_the_spread_of_any_mixture(
    routing_of_any_spread: Callable[..., tuple[tuple[Tensor, ...], float]],
    routing_session: tuple[onnxruntime.InferenceSession, bool, bool],
    seed: int,
    variance: float,
    reach: float,
    distance: float,
) -> None:
    session, masked, causal = routing_session
    operands, spread = routing_of_any_spread(seed, 10**variance, 10**reach, distance)
    mask = (torch.ones(operands[0].shape[:2]),) if masked else ()
    wanted = latent_memory_routing(*(x.double().numpy() for x in operands), causal=causal)
    error = np.abs(run(session, (*operands, *mask))[0] - wanted).max() / operands[2].abs().max().item()
    assert error <= routing_tolerances.float32_of(spread)


@pytest.mark.parametrize("apart", [5.0, 40.0])
def test_far_apart_components_write_no_subnormal_numbers(
    routing_operands: Operands, routing_session: tuple[onnxruntime.InferenceSession, bool, bool], apart: float
) -> None:
    """Responsibilities end at exp(−60); a token far from all components still has its nearest one."""
    session, masked, causal = routing_session
    operands = list(routing_operands(1, 70, 2, 8, 4, 3, masked=masked, dtype=torch.float32))
    operands[3] = operands[3] * apart
    wanted = latent_memory_routing(*(x.double().numpy() for x in operands), causal=causal)
    got = run(session, operands)[0]
    np.testing.assert_allclose(got, wanted, atol=2e-3 if apart > 5 else 1e-4)


def model_of_fixed_tokens(operands: Sequence[Tensor]) -> onnx.ModelProto:
    """A model of one routing of a fixed number of tokens and a dynamic batch."""
    node = routing_node(masked=len(operands) == 7, causal=False)
    shapes = [["batch", *x.shape[1:]] if n not in (3, 4, 5) else list(x.shape) for n, x in enumerate(operands)]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in zip(node.input, shapes, strict=True)
    ]
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, shapes[2])]
    graph = helper.make_graph([node], "routing", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    attach_bodies(model)
    return model


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("tokens", "tile"), [(1024, 512), (1000, 500), (1200, 600), (196, None), (1031, None)])
def test_routing_of_a_fixed_number_of_tokens_equals_definition(
    routing_operands: Operands, tokens: int, tile: int | None, masked: bool
) -> None:
    operands = routing_operands(2, tokens, 2, 5, 3, 4, masked=masked, dtype=torch.float32)
    model = model_of_fixed_tokens(operands)
    variant = onnx_operators()["LatentMemoryRouting"].variant(
        model.graph.node[0], {"query": tuple(operands[0].shape), "value": (None, None, 2, 4)}
    )
    assert onnx_tiled.tile(tokens) == tile
    assert variant.endswith(str(tokens)) == (tile is not None)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(
        onnx.inliner.inline_local_functions(model), strict_mode=True, data_prop=True
    )
    assert inferred.graph.output[0].type.tensor_type.shape.dim[1].dim_value == tokens
    wanted = latent_memory_routing(*(x.double().numpy() for x in operands))
    error = np.abs(run(session_of(model), operands)[0] - wanted).max() / operands[2].abs().max().item()
    assert error <= routing_tolerances.FLOAT32


def test_epsilon_reaches_the_body(routing_operands: Operands) -> None:
    operands = [x.float() for x in routing_operands(1, 5, 2, 3, 2, 2)]
    wanted = latent_memory_routing(*(x.double().numpy() for x in operands), epsilon=0.7)
    got = run(session_of(model_of(routing_node(False, False, epsilon=0.7))), operands)[0]
    assert np.abs(got - wanted).max() <= routing_tolerances.FLOAT32


def test_one_model_may_hold_several_variants(routing_operands: Operands) -> None:
    operands = [x.float() for x in routing_operands(2, 70, 2, 5, 3, 4, masked=True)]
    model = model_of(*(routing_node(masked, causal, f"{masked}{causal}") for masked, causal in VARIANTS))
    onnx.checker.check_model(model, full_check=True)
    # Inputs come in the order of their first use: the unmasked node's six, then key_mask.
    for got, (masked, causal) in zip(run(session_of(model), operands), VARIANTS, strict=True):
        given = operands if masked else operands[:-1]
        wanted = latent_memory_routing(*(x.double().numpy() for x in given), causal=causal)
        assert np.abs(got - wanted).max() <= routing_tolerances.FLOAT32


VARIANTS = [(False, False), (False, True), (True, False), (True, True)]
MODELS = [filter_node, *(lambda m=m, c=c: routing_node(m, c) for m, c in VARIANTS)]


@pytest.mark.parametrize("node", MODELS, ids=["filter", "routing", "causal", "masked", "causal_masked"])
def test_bodies_pass_the_full_checker_and_strict_shape_inference(node: Callable[[], onnx.NodeProto]) -> None:
    model = model_of(node())
    onnx.checker.check_model(model, full_check=True)
    inlined = onnx.inliner.inline_local_functions(model)
    inferred = onnx.shape_inference.infer_shapes(inlined, strict_mode=True, data_prop=True)
    assert {node.domain for node in inlined.graph.node} <= {"", "ai.onnx"}
    assert inferred.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


@pytest.mark.parametrize("node", [filter_node, lambda: routing_node(False, True)], ids=["filter", "causal"])
def test_float16_operands_are_computed_in_float32(
    filter_operands: Operands, routing_operands: Operands, node: Callable[[], onnx.NodeProto]
) -> None:
    built = node()
    if built.op_type == "SeparableGaussianFilter":
        operands, definition = filter_operands(2, 6, 7, 2, 4, 3), separable_gaussian_filter
    else:
        operands, definition = routing_operands(2, 70, 2, 5, 3, 4), lambda *x: latent_memory_routing(*x, causal=True)
    halves = [x.half() for x in operands]
    got = run(session_of(model_of(built, kind=TensorProto.FLOAT16)), halves)[0]
    assert got.dtype == np.float16
    assert np.abs(got - definition(*(x.double().numpy() for x in halves))).max() <= 3 * filter_tolerances.FLOAT16


def test_custom_domain_is_imported_once() -> None:
    model = model_of(filter_node())
    del model.functions[:]
    attach_bodies(model)
    assert [(x.domain, x.version) for x in model.opset_import if x.domain == DOMAIN] == [(DOMAIN, OPSET_VERSION)]
    assert len(model.functions) == 1


def test_model_without_custom_nodes_stays_as_it_is() -> None:
    graph = helper.make_graph([], "empty", [], [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    before = model.SerializeToString()
    attach_bodies(model)
    assert model.SerializeToString() == before


def model_with_fixed_fields(fields: list[tuple[Tensor, ...]]) -> onnx.ModelProto:
    """A model of filters in a row of inputs `value_0`, …, whose grids are fixed and whose fields are initializers."""
    nodes, inputs, outputs, initializers = [], [], [], []
    for n, (value, *field) in enumerate(fields):
        names = [f"{operand}_{n}" for operand in ("value", "offset", "width", "weight")]
        inputs.append(helper.make_tensor_value_info(names[0], TensorProto.FLOAT, ["batch", *value.shape[1:]]))
        initializers += [numpy_helper.from_array(x.float().numpy(), name) for x, name in zip(field, names[1:], strict=True)]
        nodes.append(helper.make_node("SeparableGaussianFilter", names, [f"output_{n}"], domain=DOMAIN))
        outputs.append(helper.make_tensor_value_info(f"output_{n}", TensorProto.FLOAT, [None] * 5))
    graph = helper.make_graph(nodes, "fixed", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    attach_bodies(model)
    return model


def model_of_one_grid(value: Tensor, weight: Tensor) -> onnx.ModelProto:
    """A model of one filter whose grid and steering are fixed and whose batches, of values and of fields, are dynamic."""
    shapes = {"value": value.shape, "offset": (*weight.shape, 2), "width": (*weight.shape, 2), "weight": weight.shape}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"{n}_batch", *x[1:]]) for n, x in shapes.items()]
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["value_batch", *value.shape[1:]])]
    graph = helper.make_graph([filter_node()], "steered", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    attach_bodies(model)
    return model


# Whole, in tiles of rows, one tile of all rows (37 is prime), not square, three pieces (more than 64 cells), one row.
GRIDS = [(14, 14), (32, 32), (37, 20), (48, 30), (4, 70), (1, 9)]


@pytest.mark.parametrize(("H", "W"), GRIDS)
@pytest.mark.parametrize("batched", [False, True])
def test_steered_field_of_a_fixed_grid_equals_definition(filter_operands: Operands, H: int, W: int, batched: bool) -> None:
    operands = [x.float() for x in filter_operands(2, H, W, 2, 5, 4, batched=batched)]
    model = model_of_one_grid(operands[0], operands[3])
    axes = {x.name: [d.dim_value or None for d in x.type.tensor_type.shape.dim] for x in model.graph.input}
    shapes = {name: tuple(sizes) for name, sizes in axes.items()}
    assert onnx_operators()["SeparableGaussianFilter"].variant(model.graph.node[0], shapes).endswith("_steered")
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(onnx.inliner.inline_local_functions(model), strict_mode=True, data_prop=True)
    wanted = separable_gaussian_filter(*(x.double().numpy() for x in operands))
    assert np.abs(run(session_of(model), operands)[0] - wanted).max() <= filter_tolerances.FLOAT32


@pytest.mark.parametrize("sigma", [1e-4, 1e-2, 0.16, 0.25, 3.0, 1e4])
@pytest.mark.parametrize("side", [64, 128, 256])
def test_exponents_by_one_product_are_exact_on_long_axes(side: int, sigma: float) -> None:
    """Random widths about one, and centres that lie midway between two cells, where nearly equal weights must not cancel."""
    draw = torch.Generator().manual_seed(side)
    value = torch.randn(1, side, 2, 1, 3, generator=draw)
    offset = torch.randn(1, side, 2, 1, 4, 2, generator=draw) * 3
    offset[:, ::2] = offset[:, ::2].round() + 0.5 + 1e-5 * torch.randn(1, side // 2, 2, 1, 4, 2, generator=draw)
    width = sigma * (torch.rand(1, side, 2, 1, 4, 2, generator=draw) + 0.5)
    weight = torch.softmax(torch.randn(1, side, 2, 1, 4, generator=draw), -1)
    wanted = separable_gaussian_filter(*(x.double().numpy() for x in (value, offset, width, weight)))
    for model in (model_of_one_grid(value, weight), model_of(filter_node())):
        assert np.abs(run(session_of(model), (value, offset, width, weight))[0] - wanted).max() <= filter_tolerances.FLOAT32
    eager = torch_filter(value, offset, width, weight).numpy()
    assert np.abs(eager - wanted).max() <= filter_tolerances.FLOAT32


@pytest.mark.parametrize("batch", [1, 3])
def test_two_fixed_grids_in_one_model_each_have_their_body(filter_operands: Operands, batch: int) -> None:
    fields = [filter_operands(batch, H, W, 2, 4, 3, steered=False, batched=False) for H, W in ((6, 7), (3, 2))]
    model = model_with_fixed_fields(fields)
    onnx.checker.check_model(model, full_check=True)
    assert [node.overload for node in model.graph.node] == ["6x7x2x4x3", "3x2x2x4x3"]
    for got, field in zip(run(session_of(model), [value.float() for value, *_ in fields]), fields, strict=True):
        assert np.abs(got - separable_gaussian_filter(*(x.numpy() for x in field))).max() <= filter_tolerances.FLOAT32


def test_filters_of_a_fixed_field_are_folded(filter_operands: Operands, tmp_path: Path) -> None:
    model = model_with_fixed_fields([filter_operands(1, 6, 7, 2, 4, 3, steered=False, batched=False)])
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    left = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert left.count("MatMul") == 2
    assert set(left) <= {"MatMul", "Transpose", "Reshape", "Unsqueeze", "Cast"}
