"""Rows to a file that appears whole, and back as far as a job that is taken up again needs: how many, how many bad."""

import csv
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from gaussport.errors import DataError, ServingError
from gaussport.serving.report import Row

_COLUMNS = ("image", "label", "index", "probability", "error", "code", "warnings")


class Count(NamedTuple):
    """Of a file: its pictures, and those of them that could not be used."""

    pictures: int
    unusable: int


@dataclass(frozen=True)
class Format:
    """How a part is written, and how it is counted."""

    suffix: str
    write: Callable[[Path, list[Row]], None]
    count: Callable[[Path], Count]


def written(path: Path, rows: Iterable[Row], format: Format) -> Count:
    """Write a part so that it is there whole or not at all, on disk before its name is. ServingError when it cannot be."""
    rows = list(rows)
    with appearing(path) as draft:
        format.write(draft, rows)
    return Count(len(rows), sum(row.error is not None for row in rows))


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A name to write under; when the block ends well the file is called `path`. Who is killed leaves a hidden file."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise ServingError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _write_jsonl(path: Path, rows: list[Row]) -> None:
    path.write_bytes(b"".join(orjson.dumps(row.to_json(), option=orjson.OPT_APPEND_NEWLINE) for row in rows))


def _count_jsonl(path: Path) -> Count:
    documents = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return Count(len(documents), sum("error" in document for document in documents))


def _write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(_flat(row) | {"warnings": "; ".join(row.warnings)} for row in rows)


def _count_csv(path: Path) -> Count:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return Count(len(rows), sum(bool(row["code"]) for row in rows))


def _flat(row: Row) -> dict[str, Any]:
    first = row.predictions[0] if row.predictions else {}
    return {"image": row.picture, **{key: first.get(key) for key in ("label", "index", "probability")}} | {
        "error": row.error,
        "code": row.code,
        "warnings": row.warnings,
    }


def _write_parquet(path: Path, rows: list[Row]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    prediction = pa.struct([("label", pa.string()), ("index", pa.int32()), ("probability", pa.float64())])
    kinds = (pa.string(), pa.string(), pa.int32(), pa.float64(), pa.string(), pa.string(), pa.list_(pa.string()))
    schema = pa.schema([*zip(_COLUMNS, kinds, strict=True), ("predictions", pa.list_(prediction))])
    table = pa.Table.from_pylist([_flat(row) | {"predictions": row.predictions} for row in rows], schema)
    parquet.write_table(table, path, compression="zstd")


def _count_parquet(path: Path) -> Count:
    from pyarrow import parquet

    codes = parquet.read_table(path, columns=["code"])["code"]
    return Count(len(codes), len(codes) - codes.null_count)


def counted(path: Path, format: Format) -> Count:
    """DataError when the file is not one of ours, or is damaged."""
    try:
        return format.count(path)
    except Exception as error:  # each reader has exceptions of its own
        raise DataError(f"{path} cannot be read again ({error}): delete it, and its pictures are classified anew") from error


FORMATS = {
    "jsonl": Format(".jsonl", _write_jsonl, _count_jsonl),
    "csv": Format(".csv", _write_csv, _count_csv),
    "parquet": Format(".parquet", _write_parquet, _count_parquet),
}
"""CSV has the best label alone; the others all that were asked for."""
