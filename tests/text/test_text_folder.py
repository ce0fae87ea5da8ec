"""A folder of documents is a data set: its classes in order, its split given or fixed, its faults in one sentence."""

from pathlib import Path

import pytest

from gaussport.errors import DataError
from gaussport.models.data.text_folder import text_folder


def fill(root: Path, counts: dict[str, int]) -> Path:
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for index in range(count):
            (root / name / f"{index}.txt").write_text(f"{name} {index}")
    return root


def test_a_fifth_of_each_class_is_held_out(tmp_path: Path) -> None:
    data = text_folder(fill(tmp_path, {"b": 10, "a": 20}))
    assert data.labels == ("a", "b")
    assert (data.held_out.targets.count(0), data.held_out.targets.count(1)) == (4, 2)
    assert set(data.train.files).isdisjoint(data.held_out.files)
    assert [text.decode().split()[0] for text in data.train] == ["a"] * 16 + ["b"] * 8


def test_a_split_that_is_given_is_taken(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"a": 3, "b": 1})
    fill(tmp_path / "held_out", {"a": 2})
    data = text_folder(tmp_path)
    assert (data.labels, data.train.targets, data.held_out.targets) == (("a", "b"), (0, 0, 0, 1), (0, 0))


def test_empty_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, {"a": 3, "b": 3, ".git": 2})
    (tmp_path / "a" / "empty.txt").touch()
    (tmp_path / "a" / ".hidden").write_text("x")
    data = text_folder(tmp_path)
    assert data.labels == ("a", "b")
    assert len(data.train) + len(data.held_out) == 6


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ({"a": 3}, "has 1 class folders, but at least 2 are needed"),
        ({"a": 3, "b": 1}, "the class b in .* has 1 documents, but needs at least 2"),
        ({"train/a": 2, "train/b": 2, "held_out/a": 1, "held_out/c": 1}, "has the class c, which .* has not"),
        ({"train/a": 2, "train/b": 0, "held_out/a": 1, "held_out/b": 1}, "the class b in .* needs at least 1"),
        ({"train/a": 2, "train/b": 2, "held_out/a": 0, "held_out/b": 0}, "has no documents"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(counts: dict[str, int], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=complaint):
        text_folder(fill(tmp_path, counts))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist: give a folder of root/class/document"):
        text_folder(tmp_path / "none")
