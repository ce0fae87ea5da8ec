"""The search finds a set that works and that no member can leave."""

from hypothesis import given
from hypothesis import strategies as st

from gaussport.export.precision.search import smallest_set

LAYERS = [f"layer {index}" for index in range(12)]


@given(st.sets(st.sampled_from(LAYERS)))
def test_layers_that_each_do_harm_are_found_exactly(guilty: set[str]) -> None:
    found = smallest_set(LAYERS, lambda keep: 2.0 if guilty - keep else 0.5)
    assert found == [layer for layer in LAYERS if layer in guilty]


@given(st.dictionaries(st.sampled_from(LAYERS), st.floats(0, 1, allow_nan=False)), st.floats(0.01, 3))
def test_small_harms_that_add_up_leave_a_set_that_works_and_is_minimal(harms: dict[str, float], limit: float) -> None:
    def harm(keep: frozenset[str]) -> float:
        return sum(harms.get(layer, 0.0) for layer in LAYERS if layer not in keep) / limit

    found = smallest_set(LAYERS, harm)
    assert found is not None
    kept = frozenset(found)
    assert harm(kept) <= 1
    assert all(harm(kept - {layer}) > 1 for layer in kept)


def test_harm_that_no_layer_explains_gives_no_set() -> None:
    assert smallest_set(LAYERS, lambda _keep: float("inf")) is None


def test_few_trials_are_enough() -> None:
    trials = 0

    def harm(keep: frozenset[str]) -> float:
        nonlocal trials
        trials += 1
        return 0.0 if "layer 7" in keep else 5.0

    assert smallest_set(LAYERS, harm) == ["layer 7"]
    assert trials <= 1 + len(LAYERS) + 4 + 1
