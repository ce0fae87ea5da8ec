"""Which batch a server forms on a CPU: the one at which a picture is cheapest, found without running what is dearer."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussport.export.bundle.store import open_bundle
from gaussport.serving.metrics import Metrics
from gaussport.serving.quickest_batch import quickest_batch
from gaussport.serving.runtime import Runtime
from gaussport.serving.served_model import ServedModel
from gaussport.serving.settings import Settings
from gaussport.serving.v2.metadata import config


class Machine:
    """Runs batches in a time of its own."""

    def __init__(self, per_picture: Mapping[int, float], first: float = 100.0) -> None:
        """`first` is what the first two runs of a size take beside."""
        self.now, self.ran, self._per_picture, self._first = 0.0, list[int](), per_picture, first

    def run(self, size: int) -> None:
        self.ran.append(size)
        self.now += size * self._per_picture[size] + (self._first if self.ran.count(size) <= 2 else 0)

    def quickest(self, most: int, patience_s: float = 1e9) -> int:
        return quickest_batch(self.run, most, patience_s, lambda: self.now)


@pytest.mark.parametrize(
    ("per_picture", "most", "quickest", "largest_run"),
    [
        (
            {1: 4.83, 2: 4.69, 4: 4.79, 8: 6.97, 16: 6.89},
            16,
            4,
            8,
        ),  # ms, 224 × 224 on one thread: larger ones leave the cache
        ({1: 0.89, 2: 0.76, 4: 0.70, 8: 0.71, 16: 0.70}, 16, 16, 16),  # 28 × 28: as good means larger
        ({1: 1.0, 2: 1.2, 4: 0.1, 8: 0.1}, 8, 1, 2),
        ({1: 1.0, 2: 0.9, 3: 0.8}, 3, 3, 3),
        ({1: 5.0}, 1, 1, 1),
    ],
)
def test_the_cheapest_is_found(per_picture: Mapping[int, float], most: int, quickest: int, largest_run: int) -> None:
    machine = Machine(per_picture)
    assert machine.quickest(most) == quickest
    assert max(machine.ran) == largest_run


@given(st.dictionaries(st.sampled_from([1, 2, 4, 8, 16]), st.floats(0.1, 10), min_size=5))
def test_none_that_was_run_is_cheaper_by_more_than_a_twentieth(per_picture: dict[int, float]) -> None:
    machine = Machine(per_picture)
    found = machine.quickest(16)
    assert per_picture[found] <= 1.051 * min(per_picture[size] for size in machine.ran)


@pytest.mark.parametrize(("patience_s", "quickest"), [(0, 1), (11.9, 1), (12.01, 2), (28.01, 4)])
def test_what_would_take_too_long_is_not_tried(patience_s: float, quickest: int) -> None:
    machine = Machine(dict.fromkeys((1, 2, 4, 8), 1.0), first=0.0)
    assert machine.quickest(8, patience_s) == quickest
    assert machine.now <= max(4, patience_s)


def test_batches_are_of_that_size_unless_another_is_asked_for(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runtime, "quickest_batch", lambda self, most: most // 4)
    bundle = open_bundle(tiny)
    formed = {asked: ServedModel(bundle, Settings(threads=1, max_batch=asked), Metrics()) for asked in (None, 8)}
    assert {asked: served.batcher.limits.max_batch for asked, served in formed.items()} == {None: 4, 8: 8}
    assert formed[None].max_batch == 16, "what clients are told a batch may have"
    assert config(formed[None])["parameters"]["batch"] == {"string_value": "4"}


def test_a_fixed_batch_is_not_measured(tmp_path: Path, write_bundle: Callable[..., Path]) -> None:
    assert Runtime(open_bundle(write_bundle(tmp_path / "fixed", batch=4)), threads=1).quickest_batch(4) == 4
