"""Ranges from pictures: percentile and entropy do what their definitions say, and nothing is measured twice."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gaussport.errors import DataError, ExportError
from gaussport.export.calibration import cache
from gaussport.export.calibration.pictures import Pictures, labelled, unlabelled
from gaussport.export.calibration.ranges import BINS, measured_ranges
from gaussport.export.calibration.thresholds import METHODS, PERCENTILE, Method, threshold
from gaussport.export.precision.taps import tapped
from gaussport.export.progress import unwatched
from gaussport.models.image.preprocess import Preprocessing
from tests.precision.subjects import Zoo, run

SPEC = Preprocessing(size=(8, 8))


def histogram(values: np.ndarray) -> tuple[np.ndarray, float]:
    peak = float(np.abs(values).max())
    return np.histogram(np.abs(values), bins=BINS, range=(0, peak))[0].astype(np.int64), peak


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 4))
def test_the_percentile_is_numpys_within_a_bin(seed: int, power: float) -> None:
    values = np.abs(np.random.default_rng(seed).standard_normal(20_000)) ** power
    counts, peak = histogram(values)
    expected = np.percentile(values, PERCENTILE)
    found = threshold(counts, peak, "percentile")
    assert expected <= found + 1e-9
    assert found <= max(expected, np.sort(values)[-2]) + 2 * peak / BINS or found == pytest.approx(peak)


def test_entropy_clips_outliers_and_keeps_a_full_range() -> None:
    random = np.random.default_rng(0)
    bell = random.standard_normal(100_000)
    counts, peak = histogram(np.append(bell, [40.0]))
    assert 2.0 <= threshold(counts, peak, "entropy") <= 6.0
    counts, peak = histogram(random.uniform(-1, 1, 100_000))
    assert threshold(counts, peak, "entropy") >= 0.9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_thresholds_scale_with_the_numbers(method: Method, scale: float) -> None:
    counts, peak = histogram(np.random.default_rng(1).standard_normal(2_000))
    assert threshold(counts, peak * scale, method) == pytest.approx(threshold(counts, peak, method) * scale)
    assert threshold(np.zeros(BINS, np.int64), 0.0, method) == 0.0


def test_measured_ranges_cover_what_the_pictures_show(ssog: Zoo) -> None:
    name = "blocks.1.mlp.0/MatMul"
    tensor = next(node.input[0] for node in ssog.model.graph.node if node.name == name)
    seen = np.concatenate([run(tapped(ssog.model, [tensor]), batch).ravel() for batch in ssog.calibration.batches()])
    ranges = measured_ranges(ssog.model, [tensor], ssog.calibration, "percentile", unwatched)
    assert ranges[tensor] == pytest.approx(np.percentile(np.abs(seen), PERCENTILE), rel=0.02)


def test_activations_that_are_no_numbers_are_named(ssog: Zoo) -> None:
    broken = ssog.with_tensor("patch_embed.bias", lambda bias: np.full_like(bias, np.nan))
    with pytest.raises(ExportError, match=r"layer_norm is NaN or infinite for one of the pictures of mnist"):
        measured_ranges(broken, ["layer_norm"], ssog.calibration, "percentile", unwatched)


def save(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (9, 7), (level, 0, 0)).save(path)


def test_pictures_are_found_at_any_depth_and_spread_evenly(tmp_path: Path) -> None:
    for index in range(10):
        save(tmp_path / f"part{index % 2}" / f"{index:02d}.png", 20 * index)
    save(tmp_path / ".hidden" / "x.png", 255)
    (tmp_path / "notes.txt").write_text("no picture")
    every, some = unlabelled(str(tmp_path), SPEC, 512), unlabelled(str(tmp_path), SPEC, 5)
    assert (every.count, some.count) == (10, 5)
    assert np.array_equal(some.pixels(1), every.pixels(2))
    assert every.digest() != some.digest()


def test_the_same_pictures_elsewhere_have_the_same_digest(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        for level in (10, 200):
            save(tmp_path / folder / f"{level}.png", level)
    a, b = (unlabelled(str(tmp_path / folder), SPEC, 512).digest() for folder in ("a", "b"))
    assert a == b


def test_labels_are_matched_by_name_and_unknown_ones_refused(tmp_path: Path) -> None:
    save(tmp_path / "cat" / "1.png", 1)
    save(tmp_path / "ape" / "1.png", 2)
    assert labelled(str(tmp_path), SPEC, ("cat", "dog", "ape")).targets == (2, 0)
    with pytest.raises(DataError, match=r"has the class folder 'ape', which is none of the model's labels"):
        labelled(str(tmp_path), SPEC, ("cat", "dog"))


def test_unusable_folders_and_pictures_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        unlabelled(str(tmp_path / "nowhere"), SPEC, 4)
    with pytest.raises(DataError, match="has no pictures"):
        unlabelled(str(tmp_path), SPEC, 4)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match=r"broken\.png cannot be used"):
        unlabelled(str(tmp_path), SPEC, 4).digest()


def test_cached_ranges_come_back_and_damaged_ones_do_not(tmp_path: Path) -> None:
    entry = cache.key("model", b"pictures")
    assert cache.load(entry) is None
    cache.save(entry, {"x": 1.5})
    assert cache.load(entry) == {"x": 1.5}
    (file,) = (tmp_path / "cache" / "gaussport" / "calibration").iterdir()
    for damage in ("{", "[1]", '{"x": NaN}', '{"x": "1"}', '{"x": -1.0}'):
        file.write_text(damage)
        assert cache.load(entry) is None, damage


def test_keys_tell_parts_apart() -> None:
    assert len({cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("c", "ab")}) == 4


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache.save(cache.key("a"), {"x": 1.0})
    assert cache.load(cache.key("a")) is None


def test_batches_hold_all_pictures_in_order() -> None:
    pictures = Pictures("", 70, lambda index: np.full((1, 2, 2), index, np.float32))
    assert np.concatenate(list(pictures.batches()))[:, 0, 0, 0].tolist() == list(range(70))
    assert pictures.batch_count == 3
