"""Data sets are split once and for all, balanced and disjoint; folders that cannot be trained on are refused by name."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gaussport.errors import DataError
from gaussport.models.data import data_set
from gaussport.models.data.image_folder import image_folder
from gaussport.models.data.mnist import mnist, write_held_out
from gaussport.models.data.split import stratified


def folder_of(root: Path, counts: dict[str, int], mode: str = "RGB") -> Path:
    for number, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for index in range(count):
            Image.new(mode, (12, 10), tuple([40 * number + index] * len(mode))).save(root / name / f"{index}.png")
    return root


@given(counts=st.lists(st.integers(2, 40), min_size=1, max_size=6), fraction=st.floats(0, 1), seed=st.integers(0, 9))
def test_a_split_is_disjoint_complete_and_balanced(counts: list[int], fraction: float, seed: int) -> None:
    targets = [target for target, count in enumerate(counts) for _ in range(count)]
    train, held_out = stratified(targets, fraction, seed)
    assert sorted(train + held_out) == list(range(len(targets)))
    for target, count in enumerate(counts):
        held = sum(targets[index] == target for index in held_out)
        assert 1 <= held < count
        assert abs(held - fraction * count) <= 1


def test_the_digits_are_split_evenly() -> None:
    digits = mnist()
    assert Counter(digits.train.targets) == dict.fromkeys(range(10), 400)
    assert Counter(digits.held_out.targets) == dict.fromkeys(range(10), 100)


def test_no_held_out_digit_is_trained_on() -> None:
    digits = mnist()
    train = {picture.tobytes() for picture in digits.train}
    assert len(train) == 4000
    assert not train & {picture.tobytes() for picture in digits.held_out}


def test_the_split_of_the_digits_never_changes() -> None:
    # The zoo's accuracies are of these very digits.
    _, held_out = stratified([digit for digit in range(10) for _ in range(500)], 0.2, 0)
    assert held_out[:5] == [6, 10, 15, 18, 22]
    assert held_out[-5:] == [4987, 4989, 4992, 4996, 4999]
    assert sum(held_out) == 2_501_881


def test_held_out_digits_are_written_as_a_class_folder(tmp_path: Path) -> None:
    digits = mnist()
    assert write_held_out(tmp_path / "digits") == 1000
    files = sorted((tmp_path / "digits").glob("*/*.png"))
    assert [int(file.parent.name) for file in files] == list(digits.held_out.targets)
    written = [np.asarray(Image.open(file)).tobytes() for file in files]
    assert written == [picture.tobytes() for picture in digits.held_out]


def test_the_digits_can_be_written_from_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gaussport.models.data.mnist"]
    done = subprocess.run([*command, str(tmp_path / "digits")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1000 digits" in done.stdout
    (tmp_path / "file").touch()
    refused = subprocess.run([*command, str(tmp_path / "file")], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1


def test_a_folders_classes_are_its_folders_in_order(tmp_path: Path) -> None:
    data = data_set(str(folder_of(tmp_path / "pets", {"dog": 5, "cat": 10})))
    assert data.labels == ("cat", "dog")
    assert (Counter(data.train.targets), Counter(data.held_out.targets)) == ({0: 8, 1: 4}, {0: 2, 1: 1})
    assert data.mirrors


def test_hidden_files_and_other_files_are_passed_over(tmp_path: Path) -> None:
    root = folder_of(tmp_path, {"a": 2, "b": 2})
    for name in ("a/notes.txt", "a/.3.png", "b/Thumbs.db", "readme.md"):
        (root / name).write_text("not a picture")
    (root / ".cache").mkdir()
    data = image_folder(root)
    assert len(data.train) + len(data.held_out) == 4


def test_suffixes_in_capitals_count(tmp_path: Path) -> None:
    root = folder_of(tmp_path, {"a": 2, "b": 2})
    (root / "a" / "0.png").rename(root / "a" / "0.PNG")
    assert len(image_folder(root).train) == 2


def test_a_folder_that_is_missing_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="does not exist: give `mnist` or a folder"):
        data_set(str(tmp_path / "none"))
    with pytest.raises(DataError, match="is a file"):
        data_set(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, "has 0 class folders"),
        ({"a": 3}, "has 1 class folders"),
        ({"a": 3, "b": 0}, "the class b"),
        ({"a": 1, "b": 3}, "the class a"),
    ],
)
def test_a_folder_that_cannot_be_split(counts: dict[str, int], words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        image_folder(folder_of(tmp_path, counts))


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    root = folder_of(tmp_path, {"a": 2, "b": 2})
    for file in root.glob("b/*.png"):
        file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(DataError, match=r"b/\d\.png cannot be trained on: the picture is damaged"):
        list(image_folder(root).train)
