"""Accuracy on labelled pictures: who is right, who changed, what counts as no answer."""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from gaussport.errors import DataError
from gaussport.export.bundle.store import Bundle
from gaussport.export.calibration.pictures import Pictures
from gaussport.export.precision.accuracy import NO_ANSWER, classes_of, compared
from gaussport.export.progress import unwatched
from gaussport.export.verification.contact_sheet import MOST, as_seen, contact_sheet
from gaussport.export.verification.labelled import data_answered
from gaussport.export.verification.measurement import Changed, ClassScore, measure
from gaussport.export.verification.subject import Subject
from gaussport.export.verification.wish import VerifyWish
from gaussport.models.image.preprocess import Preprocessing, to_pixels

LABELS = ("cat", "dog", "owl")
SPEC = Preprocessing(size=(4, 6), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
Model = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def _pictures(targets: tuple[int, ...]) -> Pictures:
    """The i-th picture is i everywhere, so that a model can tell which it is asked about."""
    names = tuple(f"picture {index}" for index in range(len(targets)))
    return Pictures("folder", len(targets), lambda index: np.full((3, 4, 6), index, np.float32), targets, names)


def _answering(classes: list[int], margin: float = 1.0) -> Model:
    """A model that gives the i-th picture the i-th of these classes."""

    def run(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.eye(3, dtype=np.float32)[[classes[int(row[0, 0, 0])] for row in pixels]] * np.float32(margin)

    return run


def test_accuracy_and_each_class() -> None:
    found = measure(_answering([0, 1, 1, 0]), _pictures((0, 0, 1, 1)), LABELS, 0.0, unwatched)
    assert (found.accuracy, found.reference, found.drop, found.changed) == (0.5, None, None, ())
    assert found.classes == (ClassScore("cat", 2, 1, None), ClassScore("dog", 2, 1, None))


def test_changes_against_a_reference() -> None:
    reference = ("PyTorch", _answering([0, 1, 1, 1]))
    found = measure(_answering([0, 2, 1, 0]), _pictures((0, 1, 1, 1)), LABELS, 0.0, unwatched, reference)
    assert (found.accuracy, found.reference_accuracy, found.agreement, found.drop) == (0.5, 1.0, 0.5, 50.0)
    assert found.changed == (
        Changed(1, "picture 1", target=1, reference=1, found=2, tie=False),
        Changed(3, "picture 3", target=1, reference=1, found=0, tie=False),
    )
    assert found.confusion == [(1, 0, 1), (1, 2, 1)]
    assert found.classes[1] == ClassScore("dog", 3, 1, 3)


def test_more_pictures_than_a_batch() -> None:
    targets = tuple(index % 3 for index in range(100))
    found = measure(_answering(list(targets)), _pictures(targets), LABELS, 0.0, unwatched, ("x", _answering([0] * 100)))
    assert (found.pictures, found.accuracy, found.reference_accuracy) == (100, 1.0, 0.34)


def test_a_change_within_the_tolerance_is_a_tie() -> None:
    reference = ("PyTorch", _answering([0], margin=0.1))
    for tolerance, tie in ((0.05, True), (0.049, False)):
        found = measure(_answering([1]), _pictures((0,)), LABELS, tolerance, unwatched, reference)
        assert found.changed[0].tie is tie


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_answer_that_is_no_number_is_wrong_and_changed(bad: float) -> None:
    def run(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.array([[1, bad, 0]], np.float32).repeat(len(pixels), 0)

    found = measure(run, _pictures((1, 0)), LABELS, np.inf, unwatched, ("PyTorch", _answering([1, 0])))
    assert (found.accuracy, found.agreement) == (0.0, 0.0)
    assert [(change.found, change.tie) for change in found.changed] == [(NO_ANSWER, False)] * 2


def test_pictures_that_cannot_be_read_are_named_and_left_out() -> None:
    whole = _pictures((0, 1, 2))

    def pixels(index: int) -> NDArray[np.float32]:
        if index == 1:
            raise DataError("damaged")
        return whole.pixels(index)

    broken = Pictures("folder", 3, pixels, whole.targets, whole.names)
    found = measure(_answering([0, 0, 2]), broken, LABELS, 0.0, unwatched, ("PyTorch", _answering([0, 0, 0])))
    assert (found.pictures, found.unreadable, found.accuracy) == (2, ("picture 1",), 1.0)
    assert [change.name for change in found.changed] == ["picture 2"]
    with pytest.raises(DataError, match="none of the 1 pictures of folder can be read"):
        measure(_answering([0]), Pictures("folder", 1, lambda _: pixels(1), (0,), ("x",)), LABELS, 0.0, unwatched)


@pytest.mark.parametrize(("channels", "number"), [("RGB", 3), ("L", 1)])
def test_a_picture_is_shown_as_the_model_saw_it(channels: str, number: int) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    picture = Image.fromarray(levels).convert(channels)
    spec = Preprocessing.model_validate(
        {"size": (4, 6), "channels": channels, "mean": (0.4, 0.5, 0.6)[:number], "std": (0.2, 0.3, 0.25)[:number]}
    )
    seen = as_seen(to_pixels(picture.convert("RGB"), spec), spec)
    np.testing.assert_array_equal(np.asarray(seen), np.asarray(picture.convert("RGB")))


def test_the_contact_sheet_shows_every_changed_picture_up_to_a_limit() -> None:
    pictures = _pictures((0,) * 3)
    sizes = []
    for number in (1, 7, MOST, 3 * MOST):
        changed = [Changed(index % 3, "x" * 500, 0, NO_ANSWER, 1, False) for index in range(number)]
        sizes.append(Image.open(BytesIO(contact_sheet(changed, pictures, ("long " * 99, "b", "c"), SPEC))).size)
    assert sizes[0][0] < sizes[1][0] == sizes[2][0]
    assert sizes[0][1] < sizes[1][1] < sizes[2][1]
    assert sizes[2] == sizes[3]


def _with_a_hole(targets: tuple[int, ...], hole: int) -> Pictures:
    whole = _pictures(targets)

    def pixels(index: int) -> NDArray[np.float32]:
        if index == hole:
            raise DataError("broken")
        return whole.pixels(index)

    return Pictures(whole.source, whole.count, pixels, whole.targets, whole.names)


def test_an_export_leaves_out_what_cannot_be_read_as_verify_does() -> None:
    pictures = _with_a_hole((0, 0, 1, 1), 2)
    model, reference = _answering([0, 1, 1, 0]), _answering([0, 0, 1, 1])
    found = compared("as written", pictures, *(classes_of(run, pictures, unwatched, "") for run in (reference, model)))
    again = measure(model, pictures, LABELS, 0.0, unwatched, ("PyTorch", reference))
    assert (found.pictures, found.unreadable) == (again.pictures, again.unreadable) == (3, ("picture 2",))
    assert (found.checkpoint, found.model, found.agreement) == (1.0, 1 / 3, 1 / 3)
    assert (found.checkpoint, found.model) == (again.reference_accuracy, again.accuracy)


def test_no_picture_that_can_be_read_is_an_error_in_both() -> None:
    pictures = _with_a_hole((0,), 0)
    classes = classes_of(_answering([0]), pictures, unwatched, "")
    with pytest.raises(DataError, match="none of the 1 pictures of folder can be read"):
        compared("as written", pictures, classes, classes)


def _pictures_on_disk(root: Path) -> Path:
    (root / "kind 3").mkdir(parents=True)
    for index in range(2):
        Image.new("RGB", (40, 24), (80 * index, 10, 10)).save(root / "kind 3" / f"{index}.png")
    return root


@pytest.mark.parametrize("resized_from", [None, (12, 20)])
def test_the_cards_accuracy_is_not_lent_to_another_size(
    bundle: Bundle, tmp_path: Path, resized_from: tuple[int, int] | None
) -> None:
    """The card speaks of the size that the weights were trained on."""
    origin = bundle.manifest.provenance.model_copy(update={"resized_from": resized_from})
    resized = replace(bundle, manifest=bundle.manifest.model_copy(update={"provenance": origin}))
    said = data_answered(Subject(resized, VerifyWish(data=str(_pictures_on_disk(tmp_path / "pictures")))))
    other = " for pictures of 12×20, and this model takes 24×40" if resized_from else ""
    assert said.endswith(f"of 2 pictures of {tmp_path / 'pictures'} are right, its checkpoint's card states 75.00%{other}")
