"""Damage of any kind, in every format: a sentence of ours or a checkpoint, never anything else."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussport.errors import GaussportError
from gaussport.models.checkpoint import read_checkpoint, write_checkpoint
from gaussport.models.checkpoint.early import refuse_early
from tests.models.checkpoints import good_checkpoint, save, torch_document

DATA = Path(__file__).parent / "data"
FORMS = ("zip.pt", "legacy.pt", "a.safetensors", "a.msgpack")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    save(folder / "zip.pt", torch_document(good_checkpoint()))
    save(folder / "legacy.pt", torch_document(good_checkpoint()), legacy=True)
    write_checkpoint(folder / "a.safetensors", good_checkpoint())
    shutil.copy(DATA / "ssog.msgpack", folder / "a.msgpack")
    return folder


def tried(path: Path) -> None:
    with suppress(GaussportError):
        refuse_early(path)
        read_checkpoint(path)


@given(form=st.sampled_from(FORMS), place=st.floats(0, 1, exclude_max=True), bytes_=st.binary(min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_bytes_that_are_others(form: str, place: float, bytes_: bytes, good: Path) -> None:
    data = bytearray((good / form).read_bytes())
    start = int(place**3 * len(data))  # the interesting bytes come first
    data[start : start + len(bytes_)] = bytes_
    target = good / f"damaged-{form}"
    target.write_bytes(bytes(data))
    tried(target)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(field=st.sampled_from(("dtype", "shape", "data_offsets")), value=json_values)
@settings(max_examples=80, deadline=None)
def test_a_header_of_anything(field: str, value: Any, good: Path) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], field: value}
    text = json.dumps({"w": entry}).encode()
    target = good / "header.safetensors"
    target.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 8)
    tried(target)


@given(value=json_values, at=st.sampled_from(("tree_metadata", "key_metadata", "value_metadata", "use_ocdbt", "use_zarr3")))
@settings(max_examples=25, deadline=None)
def test_metadata_of_orbax_of_anything(value: Any, at: str, good: Path) -> None:
    target = good / "orbax"
    if not target.exists():
        shutil.copytree(DATA / "ssog-orbax", target)
    metadata = json.loads((DATA / "ssog-orbax" / "_METADATA").read_text())
    if at in metadata:
        metadata[at] = value
    else:
        next(iter(metadata["tree_metadata"].values()))[at] = value
    (target / "_METADATA").write_text(json.dumps(metadata))
    tried(target)


@given(content=st.dictionaries(st.text(max_size=8), json_values, max_size=4))
@settings(max_examples=60, deadline=None)
def test_a_checkpoint_of_anything_beside_its_weights(content: dict[str, Any], good: Path) -> None:
    tried(save(good / "odd.pt", {"state_dict": {"w": torch.zeros(2)}, **content}))
    tried(save(good / "odd.pt", content))
