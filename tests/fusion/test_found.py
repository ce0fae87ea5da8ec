"""Modules that others would write, exported in every way that they would, become one operator for each attention."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx.inliner
import pytest
import torch
from numpy.typing import NDArray

from gaussport.export.fusion.foreign_model import ForeignModel
from gaussport.export.fusion.gaussians import filters, fitted
from gaussport.export.fusion.proof import TOLERANCE
from gaussport.export.fusion.rewriting import Fusion, fuse
from gaussport.export.fusion.sampling import session_of
from gaussport.plugins import DOMAIN
from tests.fusion.conftest import Foreign
from tests.fusion.foreign import gma, ssog
from tests.fusion.foreign.exporting import optimised

STYLES = {**ssog.STYLES, **gma.STYLES}


def require_equal(foreign: ForeignModel, fusion: Fusion) -> None:
    """The fused model is sound, takes any batch, and answers as the file does."""
    onnx.checker.check_model(fusion.model, full_check=True)
    inlined = onnx.inliner.inline_local_functions(fusion.model)
    onnx.shape_inference.infer_shapes(inlined, check_type=True, strict_mode=True, data_prop=True)
    sessions = [session_of(model, optimise=True) for model in (foreign.original, fusion.model, inlined)]
    for batch in (1, 2, 5):
        pixels = np.random.default_rng(batch).standard_normal((batch, *foreign.picture), dtype=np.float32)
        feeds = [{session.get_inputs()[0].name: pixels} for session in sessions]
        wanted, *found = (session.run(None, feed)[0] for session, feed in zip(sessions, feeds, strict=True))
        for answer in found:
            assert np.abs(answer - wanted).max() <= TOLERANCE * max(1.0, float(np.abs(wanted).max()))


def operator_nodes(fusion: Fusion) -> list[onnx.NodeProto]:
    return [node for node in fusion.model.graph.node if node.domain == DOMAIN]


@pytest.mark.parametrize("style", list(STYLES))
def test_every_style_is_found(foreign: Foreign, style: str) -> None:
    _, model = foreign(STYLES[style], "torchscript unfolded", depth=2)
    fusion = fuse(model.model)
    assert (len(fusion.fused), fusion.refused) == (2, ())
    assert len(operator_nodes(fusion)) == 2
    assert not {"Einsum", "CumSum", "Trilu"} & {node.op_type for node in fusion.model.graph.node}
    require_equal(model, fusion)


def test_the_dynamo_exporter_is_understood(foreign: Foreign) -> None:
    layers = iter([ssog.EinsumSteered, ssog.MatmulSteered, gma.CumsumRouting, gma.MatmulRouting])
    _, model = foreign(lambda dim, heads, grid: next(layers)(dim, heads, grid), "dynamo", 23, depth=4)
    fusion = fuse(model.model)
    assert (len(fusion.fused), fusion.refused) == (4, ())
    require_equal(model, fusion)


@pytest.mark.parametrize(("style", "opset"), [("EinsumSteered", 17), ("TrilRouting", 17), ("Expanded", 20)])
def test_other_opsets_of_the_older_exporter(foreign: Foreign, style: str, opset: int) -> None:
    _, model = foreign(STYLES[style], opset=opset)
    assert model.opset == opset
    fusion = fuse(model.model)
    assert (len(fusion.fused), fusion.refused) == (1, ())
    require_equal(model, fusion)


@pytest.mark.parametrize("style", ["EinsumFixed", "MatmulSteered", "DirectRouting"])
def test_a_model_that_was_optimised_offline(foreign: Foreign, style: str) -> None:
    _, model = foreign(STYLES[style], "torchscript unfolded", edit=optimised)
    fusion = fuse(model.model)
    assert (len(fusion.fused), fusion.refused) == (1, ())
    require_equal(model, fusion)


@pytest.mark.parametrize("style", ["EinsumFixed", "ColumnsFirst"])
@pytest.mark.parametrize(
    "sizes",
    [{"grid": (4, 4)}, {"grid": (6, 3), "heads": 1}, {"grid": (5, 4), "dim": 6, "heads": 3}, {"class_token": True}],
    ids=["square", "one head", "few channels", "class token"],
)
def test_other_shapes_of_filters(foreign: Foreign, style: str, sizes: dict[str, object]) -> None:
    _, model = foreign(STYLES[style], **sizes)
    fusion = fuse(model.model)
    assert (len(fusion.fused), fusion.refused) == (1, ())
    require_equal(model, fusion)


@pytest.mark.parametrize("style", ["CumsumRouting", "MatmulRouting"])
@pytest.mark.parametrize(
    ("components", "width", "heads"),
    [(5, 1, 2), (4, 4, 1), (24, 2, 3)],
    ids=["one feature", "one head", "as many as tokens"],
)
def test_other_shapes_of_routing(foreign: Foreign, style: str, components: int, width: int, heads: int) -> None:
    def attention(dim: int, heads: int, grid: tuple[int, int]) -> torch.nn.Module:
        module: torch.nn.Module = STYLES[style](dim, heads, grid, components, width)
        return module

    _, model = foreign(attention, heads=heads)
    fusion = fuse(model.model)
    assert (len(fusion.fused), fusion.refused) == (1, ())
    require_equal(model, fusion)


def test_one_atom_needs_no_sum_over_atoms(foreign: Foreign) -> None:
    _, model = foreign(lambda dim, heads, grid: ssog.EinsumSteered(dim, heads, grid, atoms=1))
    fusion = fuse(model.model)
    assert (len(fusion.fused), fusion.refused) == (1, ())
    require_equal(model, fusion)


def initializers(fusion: Fusion) -> dict[str, NDArray[np.float32]]:
    """The constant operands of the one operator, by their place in its schema."""
    (node,) = operator_nodes(fusion)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in fusion.model.graph.initializer}
    return {str(place): stored[name] for place, name in enumerate(node.input) if name in stored}


@pytest.mark.parametrize(
    ("style", "exporter"), [("EinsumFixed", "torchscript"), ("MatmulFixed", "torchscript"), ("MatmulFixed", "dynamo")]
)
def test_a_fixed_field_is_recovered_from_its_kernels(foreign: Foreign, style: str, exporter: str) -> None:
    module, model = foreign(STYLES[style], exporter)
    field: ssog.Field = module.blocks[0].attention.field  # type: ignore[assignment, union-attr]
    stored = initializers(fuse(model.model))
    wanted = [field.mu, field.sigma(), torch.softmax(field.log_lambda, -1)]
    for place, parameter in enumerate(wanted, 1):
        assert stored[str(place)].shape == (1, 1, 1, *parameter.shape)
        assert np.allclose(stored[str(place)][0, 0, 0], parameter.detach().numpy(), atol=2e-4)


@pytest.mark.parametrize("sigma", [0.03, 0.08, 0.12, 0.5, 4.0])
@pytest.mark.parametrize("reach", [0.0, 0.5, 3.0])
def test_tables_of_any_width_are_gaussians(sigma: float, reach: float) -> None:
    """From filters that only see the nearest cell to flat ones, centred in the grid, between two cells and outside of it."""
    mu = reach * np.random.default_rng(0).standard_normal((2, 3))
    weights = filters(mu, np.full_like(mu, sigma), 6, 6).astype(np.float32).astype(np.float64)
    found = filters(*fitted(weights), 6, 6)
    assert np.abs(found - weights).max() <= 2e-6


@pytest.mark.parametrize("style", list(gma.STYLES))
def test_a_mixture_is_recovered_from_its_scores(foreign: Foreign, style: str) -> None:
    module, model = foreign(STYLES[style])
    mixture: gma.Mixture = module.blocks[0].attention.mixture  # type: ignore[assignment, union-attr]
    fusion = fuse(model.model)
    stored = initializers(fusion)
    wanted = [mixture.mean, mixture.variance(), torch.log_softmax(mixture.alpha, -1)]
    for place, parameter in enumerate(wanted, 3):
        assert np.allclose(stored[str(place)], parameter.detach().numpy(), rtol=1e-4, atol=1e-5)
    (node,) = operator_nodes(fusion)
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    assert attributes["causal"] == int(style in ("CumsumRouting", "TrilRouting", "MaskedRouting"))
    assert len(node.input) == (7 if style == "MaskedRouting" else 6)
    assert attributes["epsilon"] == pytest.approx(1e-5 if style == "TrilRouting" else 1e-6)


def test_a_steered_field_reads_the_module_s_own_parameters(foreign: Foreign) -> None:
    """Offset and width are the tensors that the module made: nothing is taken apart and joined again."""
    _, model = foreign(STYLES["EinsumSteered"])
    fusion = fuse(model.model)
    (node,) = operator_nodes(fusion)
    before = {name for other in model.model.graph.node for name in other.output}
    assert set(node.input[1:]) <= before


def test_the_rest_of_the_model_stays(foreign: Foreign) -> None:
    _, model = foreign(STYLES["EinsumFixed"])
    fusion = fuse(model.model)
    kinds: Callable[[onnx.ModelProto, str], int] = lambda m, kind: sum(n.op_type == kind for n in m.graph.node)  # noqa: E731
    for kind in ("Conv", "LayerNormalization", "Erf", "Gemm"):
        assert kinds(fusion.model, kind) == kinds(model.model, kind)
    assert fusion.model.graph.input == model.model.graph.input
    assert fusion.model.graph.output == model.model.graph.output
