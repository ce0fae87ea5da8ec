"""The texts that a calibration or a measurement runs: a folder of them, a CSV table, or JSON lines."""

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gaussport.errors import DataError, TextError
from gaussport.export.calibration.pictures import ROWS, spread
from gaussport.export.sequence.probes import Tokens
from gaussport.export.sequence.reader import TextReader
from gaussport.models.text import pad_batch

TABLES = (".csv", ".jsonl")
"""Files that hold many texts: the columns, or the fields of each line, are `text` and `label`."""

_LARGEST_FIELD = 1 << 27


@dataclass(frozen=True)
class Document:
    """A text and what to call it: the file that it is, or its own words out of a table. `label` is empty where not known."""

    name: str
    label: str
    path: Path | None = None
    text: str = ""

    def read(self) -> bytes | str:
        """Raises a DataError."""
        if self.path is None:
            return self.text
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True)
class Texts:
    """Documents as the model reads them; `targets` are classes, where known."""

    source: str
    documents: tuple[Document, ...]
    reader: TextReader
    targets: tuple[int, ...] = ()
    things: str = "texts"

    @property
    def count(self) -> int:
        return len(self.documents)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(document.name for document in self.documents)

    @property
    def batch_count(self) -> int:
        return -(-self.count // ROWS)

    def windows(self, index: int) -> list[Tokens]:
        """The document's windows. Raises a DataError."""
        document = self.documents[index]
        try:
            return self.reader.windows(document.read())
        except TextError as error:
            raise DataError(f"{document.name} cannot be used: {error}") from None

    def batches(self) -> Iterator[Tokens]:
        """The first window of each document, in order, padded: [≤ ROWS, length] at a time."""
        for start in range(0, self.count, ROWS):
            rows = [self.windows(index)[0] for index in range(start, min(start + ROWS, self.count))]
            yield pad_batch(rows, self.reader.spec)

    def readable(self) -> Iterator[tuple[list[int], list[list[Tokens]], list[int]]]:
        """All documents in order, some at a time: which are shown, the windows of each, and which cannot be read."""
        for start in range(0, self.count, ROWS):
            shown, found, unread = [], [], []
            for index in range(start, min(start + ROWS, self.count)):
                try:
                    found.append(self.windows(index))
                    shown.append(index)
                except DataError:
                    unread.append(index)
            yield shown, found, unread

    def digest(self) -> str:
        """The hash of every token that `batches` has."""
        found = hashlib.sha256()
        for batch in self.batches():
            found.update(str(batch.shape).encode() + batch.tobytes())
        return found.hexdigest()


def unlabelled(source: str, reader: TextReader, most: int) -> Texts:
    """Texts to calibrate with: those of a table, or every file in and below a folder; `most` of them, spread evenly.

    Raises:
        DataError: there are none, or the table cannot be read; when a text is read, that it cannot be used.
    """
    path = Path(source)
    found = (
        _table(path) if path.suffix.lower() in TABLES else [Document(_named(file, path), "", file) for file in _files(path)]
    )
    return Texts(source, tuple(found[index] for index in spread(len(found), most)), reader)


def labelled(source: str, reader: TextReader, labels: Sequence[str]) -> Texts:
    """Texts to measure with: a table, or a folder laid out as root/label/text.

    Raises:
        DataError: there are none, the table cannot be read, or a label is none of the model's.
    """
    path = Path(source)
    if path.suffix.lower() in TABLES:
        found, cure = _table(path), "give each text one of them"
    else:
        files = [file for file in _files(path) if len(file.relative_to(path).parts) == 2]
        found = [Document(_named(file, path), file.parent.name, file) for file in files]
        cure = "lay it out as root/label/text"
    known = {label: index for index, label in enumerate(labels)}
    unknown = sorted({document.label for document in found} - set(known))
    if not found or unknown:
        fault = f"has the label {unknown[0]!r}, which is none of the model's" if unknown else "has no labelled texts"
        raise DataError(f"{source} {fault}: {cure}")
    return Texts(source, tuple(found), reader, tuple(known[document.label] for document in found))


def _named(file: Path, root: Path) -> str:
    return str(file.relative_to(root))


def _files(root: Path) -> list[Path]:
    """Every visible file with something in it."""
    if not root.is_dir():
        fault = "is no table" if root.exists() else "does not exist"
        raise DataError(f"the text folder {root} {fault}: give a folder of texts, a .csv or a .jsonl")
    try:
        files = sorted(file for file in root.rglob("*") if file.is_file() and file.stat().st_size)
    except OSError as error:
        raise DataError(f"the text folder {root} cannot be read: {error.strerror or error}") from None
    visible = [file for file in files if not any(part.startswith(".") for part in file.relative_to(root).parts)]
    if not visible:
        raise DataError(f"the text folder {root} has no texts: give another")
    return visible


def _table(path: Path) -> list[Document]:
    read = _of_csv if path.suffix.lower() == ".csv" else _of_json_lines
    try:
        rows = list(read(path))
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        raise DataError(f"the table {path} cannot be read: {reason}") from None
    if not rows:
        raise DataError(f"the table {path} has no texts: give another")
    return [Document(f"{path.name}:{line}", label, text=text) for line, text, label in rows]


def _of_csv(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, text and label of each row of a table with a header."""
    csv.field_size_limit(_LARGEST_FIELD)
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file, strict=True)
        if "text" not in (table.fieldnames or ()):
            raise ValueError(f"its first line has no column text, but {', '.join(table.fieldnames or ()) or 'nothing'}")
        for row in table:
            yield table.line_num, row["text"] or "", row.get("label") or ""


def _of_json_lines(path: Path) -> Iterator[tuple[int, str, str]]:
    with path.open(encoding="utf-8") as file:
        for line, content in enumerate(file, start=1):
            if not content.strip():
                continue
            row = json.loads(content)
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise ValueError(f"line {line} is not an object with a text")
            yield line, row["text"], str(row.get("label", ""))
