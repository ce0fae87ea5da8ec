"""What only looks like an operator is left alone, and the reason names the node and what is wrong with it."""

import re
from dataclasses import replace

import pytest
import torch

from gaussport.export.fusion import filter_rule
from gaussport.export.fusion.gaussians import Gaussian, gaussian_of
from gaussport.export.fusion.notation import Numbers, Term
from gaussport.export.fusion.rewriting import fuse
from tests.fusion.conftest import Foreign
from tests.fusion.foreign import gma, lookalikes, ssog

REASONS = {
    "JointSoftmax": r"Softmax .* normalised over rows and columns together",
    "MixtureNormalised": r"Exp .* a sum over more than one atom's cells: a joint softmax",
    "AtomsAndCells": r"Softmax .* normalised over atoms and cells together",
    "QueryRows": r"Softmax .* and Softmax .* both follow the query token",
    "Correlated": r"Softmax .* multiplies row by column, a Gaussian that is not separable",
    "Clipped": r"Clip .* bounds its values",
    "SafeSum": r"Exp .* its sum and a constant more",
    "FixedLaplacian": r"no Gaussian filter: the nearest one differs by",
    "FixedUnnormalised": r"not normalised: its rows sum to",
    "Unnormalised": r"Exp .* never divided by its sum over the components",
    "TopK": r"ScatterElements .* a top-k mask, multiplies the responsibilities",
    "TopKRenormalised": r"ScatterElements .* a top-k mask, multiplies the responsibilities",
    "NoEpsilon": r"Div .* without an ε",
    "SlotNormalised": r"divided by another sum than the mass",
    "NeverDivided": r"never divided by the mass",
    "StrictlyBefore": r"adds 2 products of responsibilities",
    "CausalAboveOnly": r"divided by another sum than the mass",
    "TwoMixtures": r"different mixtures",
    "FullCovariance": r"no Gaussian|not diagonal",
}


@pytest.mark.parametrize("name", list(REASONS))
def test_what_looks_alike_is_refused_with_its_reason(foreign: Foreign, name: str) -> None:
    _, model = foreign(getattr(lookalikes, name))
    fusion = fuse(model.model)
    assert fusion.fused == ()
    reasons = " | ".join(refusal.reason for refusal in fusion.refused)
    assert re.search(REASONS[name], reasons)
    assert fusion.model is model.model


def test_the_other_exporter_s_graph_is_refused_too(foreign: Foreign) -> None:
    layers = iter([lookalikes.TopK, lookalikes.QueryRows, lookalikes.JointSoftmax, lookalikes.NoEpsilon])
    _, model = foreign(lambda dim, heads, grid: next(layers)(dim, heads, grid), "dynamo", depth=4)
    fusion = fuse(model.model)
    assert fusion.fused == ()
    assert len(fusion.refused) == 4


@pytest.mark.parametrize("name", ["DotProduct", "Laplacian"])
def test_nothing_is_said_of_what_does_not_look_alike(foreign: Foreign, name: str) -> None:
    _, model = foreign(getattr(lookalikes, name))
    fusion = fuse(model.model)
    assert (fusion.fused, fusion.refused) == ((), ())


class WrittenOutNorm(torch.nn.Module):
    """Layer normalisation as exporters of older opsets leave it: means, squares, a root and a quotient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


def test_long_readable_expressions_end(foreign: Foreign) -> None:
    """Everything before the attention is sums and products here; none of it is followed to the input, let alone twice."""

    class Layer(torch.nn.Module):
        def __init__(self, dim: int, heads: int, grid: tuple[int, int]) -> None:
            super().__init__()
            self.norm, self.mix = WrittenOutNorm(), lookalikes.DotProduct(dim, heads, grid)
            self.filter = ssog.EinsumSteered(dim, heads, grid)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.mix(self.norm(x))
            return torch.as_tensor(x + self.filter(self.norm(x)))

    _, model = foreign(Layer, depth=3)
    fusion = fuse(model.model)
    assert (len(fusion.fused), fusion.refused) == (3, ())


def test_a_reason_names_a_node_and_a_value_of_the_model(foreign: Foreign) -> None:
    _, model = foreign(lookalikes.TopK)
    (refusal,) = fuse(model.model).refused
    nodes = {f"{node.op_type} {node.name}" for node in model.model.graph.node}
    assert refusal.node in nodes
    assert refusal.value in {name for node in model.model.graph.node for name in node.output}


def test_a_good_layer_is_fused_beside_a_refused_one(foreign: Foreign) -> None:
    layers = iter([gma.DirectRouting, lookalikes.TopK, ssog.EinsumSteered, lookalikes.QueryRows])
    _, model = foreign(lambda dim, heads, grid: next(layers)(dim, heads, grid), depth=4)
    fusion = fuse(model.model)
    assert [fused.operator for fused in fusion.fused] == ["LatentMemoryRouting", "SeparableGaussianFilter"]
    assert len(fusion.refused) == 2


def test_a_match_whose_numbers_differ_is_refused_with_the_number(foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading alone is not believed: with μ read wrongly by a tenth of a cell the proof says by how much answers differ."""

    def wrong(*operands: object) -> Gaussian:
        right = gaussian_of(*operands)  # type: ignore[arg-type]
        return replace(right, mu=(*right.mu, Term(Numbers(torch.tensor(0.1).double().numpy()))))

    monkeypatch.setattr(filter_rule, "gaussian_of", wrong)
    _, model = foreign(ssog.EinsumSteered)
    fusion = fuse(model.model)
    assert fusion.fused == ()
    assert "their answers differ by" in fusion.refused[0].reason
