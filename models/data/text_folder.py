"""Any folder of documents laid out as root/class/document, or as root/train/class/document and root/held_out/class/document
where what is held out is given."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gaussport.errors import DataError
from gaussport.models.data.split import stratified

HELD_OUT_FRACTION = 0.2
SPLIT_SEED = 0
TRAIN, HELD_OUT = "train", "held_out"


@dataclass(frozen=True)
class LabelledDocuments:
    """`targets` are class numbers, one a document; iterating reads the documents' bytes in their order."""

    files: tuple[Path, ...]
    targets: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[bytes]:
        for file in self.files:
            try:
                yield file.read_bytes()
            except OSError as error:
                raise DataError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None

    def at(self, indices: list[int]) -> "LabelledDocuments":
        """Those at the indices, in their order."""
        return LabelledDocuments(tuple(self.files[i] for i in indices), tuple(self.targets[i] for i in indices))


@dataclass(frozen=True)
class TextDataSet:
    """A fixed split: what is trained on, and what is held out and only ever measured."""

    name: str
    labels: tuple[str, ...]
    train: LabelledDocuments
    held_out: LabelledDocuments


def text_folder(root: Path) -> TextDataSet:
    """The documents under `root`, whose classes are the folders' names in sorted order. Empty and hidden files are passed
    over. Where the folder does not say what is held out, a fixed part of each class is.

    Raises:
        DataError: there is no such folder, fewer than two classes, or too few documents in one.
    """
    parts = [root / TRAIN, root / HELD_OUT]
    if not all(part.is_dir() for part in parts):
        labels = _classes(root)
        whole = _documents(root, labels, least=2)
        train, held_out = stratified(whole.targets, HELD_OUT_FRACTION, SPLIT_SEED)
        return TextDataSet(root.resolve().name, labels, whole.at(train), whole.at(held_out))
    labels = _classes(parts[0])
    strange = [label for label in _classes(parts[1], least=1) if label not in labels]
    if strange:
        raise DataError(f"{parts[1]} has the class {strange[0]}, which {parts[0]} has not: nobody could learn it")
    return TextDataSet(
        root.resolve().name, labels, _documents(parts[0], labels, least=1), _documents(parts[1], labels, least=0)
    )


def _classes(root: Path, least: int = 2) -> tuple[str, ...]:
    if not root.is_dir():
        fault = "is a file" if root.exists() else "does not exist"
        raise DataError(f"the data folder {root} {fault}: give a folder of root/class/document")
    try:
        classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "."))
    except OSError as error:
        raise DataError(f"the data folder {root} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(classes) < least:
        raise DataError(
            f"{root} has {len(classes)} class folders, but at least {least} are needed: lay it out as root/class/document"
        )
    return classes


def _documents(root: Path, labels: tuple[str, ...], least: int) -> LabelledDocuments:
    files: list[Path] = []
    targets: list[int] = []
    for target, label in enumerate(labels):
        entries = sorted((root / label).iterdir()) if (root / label).is_dir() else []
        found = [file for file in entries if file.name[0] != "." and file.is_file() and file.stat().st_size]
        if len(found) < least:
            raise DataError(f"the class {label} in {root} has {len(found)} documents, but needs at least {least}")
        files += found
        targets += [target] * len(found)
    if not files:
        raise DataError(f"{root} has no documents: there is nothing to measure with")
    return LabelledDocuments(tuple(files), tuple(targets))
