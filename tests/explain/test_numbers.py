"""What is said of heads and components, against definitions and other people's implementations."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import normalized_mutual_info_score

from gaussport.errors import UsageError
from gaussport.export.bundle.store import Bundle
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.explain.folder import Census, normalised_mutual_information
from gaussport.serving.explain.head_shape import head_shape
from gaussport.serving.explain.layer import Layer
from gaussport.serving.explain.numbers import layer_explanations
from gaussport.serving.explain.operators.latent_memory_routing import RoutingView, bhattacharyya, effective_rank
from gaussport.serving.explain.operators.separable_gaussian_filter import FieldView
from gaussport.serving.explain.selection import Selection, parse_cell


def test_effective_rank_is_that_of_the_whole_matrix() -> None:
    draw = np.random.default_rng(0)
    read, write = draw.dirichlet(np.ones(6) * 0.3, 40), draw.dirichlet(np.ones(6) * 0.3, 40)
    shares = np.linalg.svd(read @ write.T, compute_uv=False)[:6]
    shares /= shares.sum()
    assert effective_rank(read, write) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-9)
    assert effective_rank(np.full((9, 4), 0.25), np.full((9, 4), 0.25)) == pytest.approx(1)


def test_overlap_of_gaussians_is_the_integral_of_their_geometric_mean() -> None:
    mean, variance = np.array([[0.3], [1.1]]), np.array([[0.5], [2.0]])
    x = np.linspace(-20, 20, 400_001)
    p, q = (np.exp(-((x - m) ** 2) / 2 / v) / np.sqrt(2 * np.pi * v) for m, v in zip(mean, variance, strict=True))
    found = bhattacharyya(mean, variance)
    assert found[0, 1] == pytest.approx(np.trapezoid(np.sqrt(p * q), x), rel=1e-6)
    np.testing.assert_allclose(np.diag(found), 1, rtol=1e-12)


def test_overlap_with_labels_is_scikit_learns() -> None:
    draw = np.random.default_rng(1)
    labels, components = draw.integers(0, 3, 500), draw.integers(0, 5, 500)
    components[labels == 1] = 2
    table = np.zeros((3, 5), dtype=np.int64)
    np.add.at(table, (labels, components), 1)
    assert normalised_mutual_information(table) == pytest.approx(normalized_mutual_info_score(labels, components), abs=1e-12)


def test_top_patches_are_the_largest_shares() -> None:
    draw = np.random.default_rng(2)
    census, pictures = Census(3), [draw.dirichlet(np.ones(3), 12) for _ in range(5)]
    for number, shares in enumerate(pictures):
        census.add(shares, (3, 4), number, "one")
    best = census.to_json([str(number) for number in range(5)])["top_patches"][1]
    everything = np.sort(np.concatenate(pictures)[:, 1])[::-1][:8]
    np.testing.assert_array_equal([patch["share"] for patch in best], everything)
    first = best[0]
    assert pictures[int(first["image"])].reshape(3, 4, 3)[(*first["cell"], 1)] == first["share"]


def test_a_row_takes_the_steering_of_the_intermediate_cell() -> None:
    """Of one atom that looks straight left by a cell and, at the cell left of the query only, two rows down."""
    offset = np.zeros((1, 5, 5, 1, 1, 2), dtype=np.float32)
    offset[..., 1] = 1
    offset[0, 2, 1, 0, 0, 0] = -2
    tensors = {"offset": offset, "width": np.full_like(offset, 1e-3), "weight": np.ones((1, 5, 5, 1, 1), np.float32)}
    row = FieldView(Layer("a", "SeparableGaussianFilter", (5, 5), (5, 5), {}, tensors), 0).row(0, (2, 2))
    expected = np.zeros((5, 5))
    expected[4, 1] = 1
    np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize(
    ("offset", "width", "looks"),
    [((0, 0), 0.3, ["local"]), ((0, 0), 50.0, ["long-range"]), ((0, -1), 0.2, ["local", "directional"])],
)
def test_heads_are_told_apart(offset: tuple[float, float], width: float, looks: list[str]) -> None:
    field = np.broadcast_to(np.array(offset, np.float32), (1, 1, 1, 1, 1, 2))
    tensors = {"offset": field, "width": np.full_like(field, width), "weight": np.ones((1, 1, 1, 1, 1), np.float32)}
    view = FieldView(Layer("a", "SeparableGaussianFilter", (9, 9), (36, 36), {}, tensors), 0)
    shape = head_shape(view, 0)
    assert shape["looks"] == looks
    assert shape["step_cells"] == pytest.approx([0, 8 / 9 if offset[1] else 0], abs=1e-6)  # the last column looks at itself


def test_steering_tells_how_far_and_where_to() -> None:
    fixed = np.zeros((1, 1, 2), dtype=np.float32)
    offset = np.broadcast_to(
        np.array((0, -3), np.float32), (1, 2, 2, 1, 1, 2)
    )  # the centre is query − μ: three columns to the right
    tensors = {
        "offset": offset,
        "width": np.ones_like(offset),
        "weight": np.ones((1, 2, 2, 1, 1), np.float32),
        "fixed_offset": fixed,
        "fixed_width": fixed + 1,
        "fixed_weight": np.ones((1, 1), np.float32),
    }
    steering = FieldView(Layer("a", "SeparableGaussianFilter", (2, 2), (2, 2), {}, tensors), 0).steering()
    assert steering is not None
    assert steering["mean_cells"] == steering["largest_cells"] == 3
    assert steering["directions"] == {sector: float(sector == "right") for sector in steering["directions"]}


def test_a_causal_row_sees_nothing_ahead() -> None:
    draw = np.random.default_rng(3)
    shares = draw.dirichlet(np.ones(3), (1, 6, 1)).astype(np.float32)
    tensors = {"query_responsibility": shares, "key_responsibility": shares, "mass": np.cumsum(shares, axis=1)}
    layer = Layer("a", "LatentMemoryRouting", None, (2, 3), {"causal": 1, "epsilon": 1e-6}, tensors)
    rows = np.concatenate([RoutingView(layer, 0).affinity(0, row) for row in range(2)]).reshape(6, 6)
    np.testing.assert_array_equal(np.triu(rows, 1), 0)
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("selection", "fault"),
    [
        (Selection(layers=("blocks.7.attn",)), r"no layer 'blocks.7.attn': choose from blocks.0.attn, blocks.1.attn"),
        (Selection(layers=("2",)), r"no layer '2': .* or a number from 0 to 1"),
        (Selection(heads=(4,)), r"blocks.0.attn has no head 4: choose from 0 to 3"),
        (Selection(cell=(7, 0)), r"has no cell 7,0: its grid has 7 rows and 7 columns"),
    ],
)
def test_what_is_not_there_is_refused(
    bundles: Callable[[str], Bundle], pixels: NDArray[np.float32], selection: Selection, fault: str
) -> None:
    views = Explainer(bundles("mnist-gma"), threads=1).run(pixels).views(0)
    with pytest.raises(UsageError, match=fault):
        layer_explanations(views, selection)


@pytest.mark.parametrize("text", ["", "3", "3,", "a,b", "-1,2", "1,2,3", "1.5,2", "999999,1"])
def test_a_cell_is_two_whole_numbers(text: str) -> None:
    with pytest.raises(UsageError, match=r"the cell is not ROW,COLUMN"):
        parse_cell(text)
