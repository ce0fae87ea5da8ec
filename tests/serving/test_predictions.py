"""The best labels of a row, whatever its numbers: as a stable sort of all of them has them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gaussport.serving.predictions import best


@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]), min_size=1, max_size=30), st.integers(1, 40))
def test_the_best_labels_come_first_and_equal_ones_by_index(values: list[float], top_k: int) -> None:
    labels = [f"label {index}" for index in range(len(values))]
    expected = sorted(range(len(values)), key=lambda index: (-values[index], index))[:top_k]
    found = best(np.array(values), labels, top_k)
    assert [one["index"] for one in found] == expected
    assert [one["label"] for one in found] == [labels[index] for index in expected]
    assert [one["probability"] for one in found] == [values[index] for index in expected]
