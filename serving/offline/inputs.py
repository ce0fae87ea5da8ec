"""What is to be classified, cut into parts: files by their paths, rows of Parquet files by their numbers.

The list is made once, when a job begins, so that a job that is taken up again asks for exactly the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from gaussport.errors import DataError, ImageError, ServingError, UsageError
from gaussport.serving.client import read_picture
from gaussport.serving.report import pictures_in

_SUFFIXES = (".parquet", ".pq")
_ROWS_AT_ONCE = 64
_MISSING = "this row has no picture"


@dataclass(frozen=True)
class Item:
    """One picture: what its answer is called, and how its bytes are had (ImageError when they cannot be)."""

    name: str
    read: Callable[[], bytes]


class Columns(BaseModel):
    """Where a Parquet file has what we need; the picture's column is found by itself if there is but one."""

    model_config = ConfigDict(frozen=True)

    image: str | None = None
    name: str | None = None


class Part(BaseModel):
    """Some of the pictures: files, or the rows `start` to `stop` of a Parquet file."""

    model_config = ConfigDict(frozen=True)

    files: tuple[str, ...] = ()
    table: str | None = None
    start: int = 0
    stop: int = 0

    def __len__(self) -> int:
        return len(self.files) if self.table is None else self.stop - self.start

    def items(self, columns: Columns) -> Iterator[Item]:
        """DataError when the Parquet file is no longer what it was when it was counted."""
        if self.table is None:
            for file in self.files:
                yield Item(file, lambda path=Path(file): read_picture(path))  # type: ignore[misc]
        else:
            yield from _rows(self.table, self.start, self.stop, columns)


def cut(paths: Sequence[Path], size: int) -> Iterator[Part]:
    """Every picture under the paths, in order, in parts of at most `size`.

    Raises:
        UsageError: a path does not exist.
        ServingError: there are Parquet files, and nothing to read them with.
        DataError: one of them cannot be read.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist: name pictures, folders of them, or Parquet files")
    files: list[str] = []
    for path in pictures_in(paths):
        if path.suffix.lower() not in _SUFFIXES:
            files.append(str(path))
            if len(files) == size:
                yield Part(files=tuple(files))
                files = []
            continue
        if files:
            yield Part(files=tuple(files))
            files = []
        rows = _open(str(path)).metadata.num_rows
        for start in range(0, rows, size):
            yield Part(table=str(path), start=start, stop=min(start + size, rows))
    if files:
        yield Part(files=tuple(files))


def _open(path: str) -> Any:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ServingError(f"{path} is Parquet, which pyarrow reads: install gaussport[parquet]") from error
    try:
        return parquet.ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {str(error).partition(chr(10))[0]}") from error


def _rows(path: str, start: int, stop: int, columns: Columns) -> Iterator[Item]:
    """The rows, a few in memory at a time; row groups before them are not read."""
    table = _open(path)
    if table.metadata.num_rows < stop:
        raise DataError(
            f"{path} has {table.metadata.num_rows} rows and had at least {stop}: it has changed since the job began"
        )
    image = _image_column(table.schema_arrow, columns.image, path)
    wanted = [image] if columns.name is None else [image, _named(table.schema_arrow, columns.name, path)]
    first, groups = 0, []
    for group in range(table.metadata.num_row_groups):
        size = table.metadata.row_group(group).num_rows
        if first + size > start and first < stop:
            groups.append((group, first))
        first += size
    row = groups[0][1]
    for batch in table.iter_batches(_ROWS_AT_ONCE, [group for group, _ in groups], wanted):
        for index in range(max(0, start - row), min(batch.num_rows, stop - row)):
            name = f"{path}#{row + index}" if columns.name is None else str(batch[columns.name][index].as_py())
            yield Item(name, lambda value=batch[image][index]: _bytes_of(value))  # type: ignore[misc]
        row += batch.num_rows
        if row >= stop:
            return


def _bytes_of(value: Any) -> bytes:
    """Of a binary cell, or of one as `datasets` writes pictures: a struct with `bytes` and `path`."""
    found = value.as_py()
    if isinstance(found, dict):
        found = found.get("bytes")
    if not found:
        raise ImageError(_MISSING, "empty_image")
    return bytes(found)


def _image_column(schema: Any, asked: str | None, path: str) -> str:
    if asked is not None:
        return _named(schema, asked, path)
    from pyarrow import types

    fit = [
        each.name
        for each in schema
        if types.is_binary(each.type) or types.is_large_binary(each.type) or _has_bytes(each.type)
    ]
    if "image" in fit:
        return "image"
    if len(fit) != 1:
        raise UsageError(
            f"{path} has {len(fit)} columns that may be pictures, of {', '.join(schema.names)}: name one by --image-column"
        )
    return str(fit[0])


def _has_bytes(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_struct(kind)) and bool(kind.get_field_index("bytes") >= 0)


def _named(schema: Any, column: str, path: str) -> str:
    if column not in schema.names:
        raise UsageError(f"{path} has no column {column}: it has {', '.join(schema.names)}")
    return column
