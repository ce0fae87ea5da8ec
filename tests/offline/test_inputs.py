"""What is cut into parts is whole, in order, and no more than was there."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussport.errors import DataError, ImageError, UsageError
from gaussport.serving.offline.inputs import Columns, Item, Part, cut

pa = pytest.importorskip("pyarrow", reason="install gaussport[parquet]")
parquet = pytest.importorskip("pyarrow.parquet")


def read(item: Item) -> bytes | None:
    try:
        return item.read()
    except ImageError as error:
        return None if error.code == "empty_image" else error.code.encode()


@given(
    tables=st.lists(st.lists(st.none() | st.binary(min_size=1, max_size=6), max_size=30), min_size=1, max_size=3),
    files=st.integers(0, 7),
    group=st.integers(1, 11),
    size=st.integers(1, 12),
    struct=st.booleans(),
)
def test_parts_hold_each_picture_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    tables: list[list[bytes | None]],
    files: int,
    group: int,
    size: int,
    struct: bool,
) -> None:
    home = tmp_path_factory.mktemp("inputs")
    for number in range(files):
        (home / f"b{number}.png").write_bytes(bytes([number]))
    expected: list[tuple[str, bytes | None]] = [(str(home / f"b{number}.png"), bytes([number])) for number in range(files)]
    for number, rows in enumerate(tables):
        path = home / f"{'ac'[number % 2]}{number}.parquet"
        cells: list[Any] = [{"bytes": row, "path": None} for row in rows] if struct else list(rows)
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())]) if struct else pa.binary()
        parquet.write_table(pa.table({"n": range(len(rows)), "image": pa.array(cells, kind)}), path, row_group_size=group)
        expected += [(f"{path}#{row}", content) for row, content in enumerate(rows)]
    parts = [Part.model_validate_json(part.model_dump_json(exclude_defaults=True)) for part in cut([home], size)]
    found = [(item.name, read(item)) for part in parts for item in part.items(Columns())]
    assert found == sorted(expected, key=lambda each: (each[0].split("#")[0], int(each[0].partition("#")[2] or 0)))
    assert all(1 <= len(part) <= size for part in parts)


def table(path: Path, columns: dict[str, Any]) -> Part:
    parquet.write_table(pa.table(columns), path)
    [part] = cut([path], 10)
    return part


def test_columns_are_found_or_named(tmp_path: Path) -> None:
    one = table(tmp_path / "one.parquet", {"name": ["x"], "jpeg": [b"1"]})
    assert [(item.name, item.read()) for item in one.items(Columns(name="name"))] == [("x", b"1")]
    two = table(tmp_path / "two.parquet", {"small": [b"1"], "large": [b"2"]})
    assert [item.read() for item in two.items(Columns(image="large"))] == [b"2"]
    for columns in (Columns(), Columns(image="none"), Columns(image="small", name="none")):
        with pytest.raises(UsageError, match="small, large"):
            list(two.items(columns))


def test_a_table_that_has_changed_or_is_none_is_told(tmp_path: Path) -> None:
    part = table(tmp_path / "one.parquet", {"image": [b"1", b"2"]})
    table(tmp_path / "one.parquet", {"image": [b"1"]})
    with pytest.raises(DataError, match="has changed"):
        list(part.items(Columns()))
    (tmp_path / "two.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="as Parquet"):
        list(cut([tmp_path], 10))
