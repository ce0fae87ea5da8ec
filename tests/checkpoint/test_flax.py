"""Checkpoints of the JAX twin, written by the real Flax and Orbax (see data/make_flax_checkpoints.py): the same logits."""

import json
import shutil
import sys
from pathlib import Path

import msgpack
import numpy as np
import pytest
import tensorstore
import torch
from numpy.typing import NDArray

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint import Checkpoint, Wishes, build_classifier, read_checkpoint

DATA = Path(__file__).parent / "data"
LOGITS = np.load(DATA / "logits.npz")


def answers(checkpoint: Checkpoint) -> NDArray[np.float32]:
    with torch.no_grad():
        return np.asarray(build_classifier(checkpoint)(torch.from_numpy(LOGITS["pixels"])).numpy())


@pytest.mark.parametrize(("name", "family"), [("ssog.msgpack", "ssog"), ("gma.msgpack", "gma"), ("ssog-orbax", "ssog")])
def test_logits_are_those_of_jax(name: str, family: str) -> None:
    checkpoint = read_checkpoint(DATA / name)
    assert checkpoint.config.family == family
    assert (checkpoint.config.gelu, checkpoint.config.norm_epsilon) == ("tanh", 1e-6)
    assert {"gelu", "norm_epsilon"} <= set(checkpoint.assumed)
    np.testing.assert_allclose(answers(checkpoint), LOGITS[family], rtol=0, atol=1e-5)


def test_the_gelu_and_the_epsilon_are_seen_in_the_logits() -> None:
    # If these did not matter, the test above would prove nothing about them.
    for setting in ({"gelu": "exact"}, {"norm_epsilon": 1e-5}):
        other = read_checkpoint(DATA / "ssog.msgpack", wishes=Wishes(settings=setting))
        assert np.abs(answers(other) - LOGITS["ssog"]).max() > 1e-4


def test_bfloat16_is_read_to_the_bit() -> None:
    small, full = read_checkpoint(DATA / "ssog-bf16.msgpack"), read_checkpoint(DATA / "ssog.msgpack")
    assert small.stored_dtypes == ("bfloat16",)
    for name, tensor in full.state_dict.items():
        assert torch.equal(small.state_dict[name], tensor.bfloat16().float())


def test_orbax_arrays_in_folders_of_their_own(tmp_path: Path) -> None:
    """The other form of Orbax, made from the first: one Zarr array a folder, named by its keys."""
    source, target = DATA / "ssog-orbax", tmp_path / "zarr"
    target.mkdir()
    metadata = json.loads((source / "_METADATA").read_text()) | {"use_ocdbt": False}
    (target / "_METADATA").write_text(json.dumps(metadata))
    for entry in metadata["tree_metadata"].values():
        place = ".".join(part["key"] for part in entry["key_metadata"])
        if place.startswith("params"):
            base = {"driver": "file", "path": f"{source}/"}
            store = {"driver": "ocdbt", "base": base, "path": f"{place}/"}
            numbers = tensorstore.open({"driver": "zarr", "kvstore": store}, open=True).result().read().result()
            spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{target}/{place}/"}}
            tensorstore.open(spec, create=True, dtype=numbers.dtype, shape=numbers.shape).result().write(numbers).result()
    np.testing.assert_allclose(answers(read_checkpoint(target)), LOGITS["ssog"], rtol=0, atol=1e-5)


def test_a_managers_folder_leads_to_its_one_step(tmp_path: Path) -> None:
    shutil.copytree(DATA / "ssog-orbax", tmp_path / "run" / "3" / "default")
    assert read_checkpoint(tmp_path / "run").config.family == "ssog"
    shutil.copytree(DATA / "ssog-orbax", tmp_path / "run" / "12" / "default")
    with pytest.raises(CheckpointError, match="holds the steps 3 to 12: give the folder of one"):
        read_checkpoint(tmp_path / "run")


@pytest.mark.parametrize("part", [0.2, 0.5, 0.99])
def test_a_truncated_msgpack(part: float, tmp_path: Path) -> None:
    data = (DATA / "ssog.msgpack").read_bytes()
    (tmp_path / "a.msgpack").write_bytes(data[: int(part * len(data))])
    with pytest.raises(CheckpointError, match=r"a\.msgpack is a truncated or damaged msgpack file"):
        read_checkpoint(tmp_path / "a.msgpack")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (([2**40, 2**40], "float32", b"\0" * 4), r"an array of shape \[1099511627776, 1099511627776\] and 4 bytes"),
        (([-1], "float32", b"\0" * 4), "which do not agree"),
        (([1], "object", b"\0" * 8), "'object', which is no dtype of weights"),
        (([1], "load", b"\0" * 8), "'load', which is no dtype of weights"),
    ],
)
def test_an_array_that_lies(array: object, words: str, tmp_path: Path) -> None:
    document = {"params": {"w": msgpack.ExtType(1, msgpack.packb(array))}}
    (tmp_path / "a.msgpack").write_bytes(msgpack.packb(document))
    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(tmp_path / "a.msgpack")


def test_a_complex_number_is_no_weight(tmp_path: Path) -> None:
    (tmp_path / "a.msgpack").write_bytes(msgpack.packb({"params": {"w": msgpack.ExtType(2, b"\x92\0\0")}}))
    with pytest.raises(CheckpointError, match="save the params alone"):
        read_checkpoint(tmp_path / "a.msgpack")


def test_an_array_in_chunks_is_put_together(tmp_path: Path) -> None:
    document = msgpack.unpackb((DATA / "ssog.msgpack").read_bytes(), ext_hook=msgpack.ExtType)
    bias = document["params"]["head"]["bias"]
    shape, dtype, numbers = msgpack.unpackb(bias.data)
    chunks = [msgpack.ExtType(1, msgpack.packb(([n], dtype, part))) for n, part in ((2, numbers[:8]), (3, numbers[8:]))]
    document["params"]["head"]["bias"] = {
        "__msgpack_chunked_array__": True,
        "shape": {"0": shape[0]},
        "chunks": {"0": chunks[0], "1": chunks[1]},
    }
    (tmp_path / "a.msgpack").write_bytes(msgpack.packb(document))
    found = read_checkpoint(tmp_path / "a.msgpack")
    assert torch.equal(found.state_dict["head.bias"], read_checkpoint(DATA / "ssog.msgpack").state_dict["head.bias"])


@pytest.mark.parametrize("victim", ["_METADATA", "manifest.ocdbt", "d"])
def test_orbax_with_a_part_missing(victim: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / "ssog-orbax", tmp_path / "orbax"))
    shutil.rmtree(folder / victim) if victim == "d" else (folder / victim).unlink()
    with pytest.raises(
        CheckpointError, match=r"orbax .*(_METADATA|copy the whole folder again)|copy the whole folder again"
    ):
        read_checkpoint(folder)


def test_orbax_keys_cannot_lead_outside(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / "ssog-orbax", tmp_path / "orbax"))
    metadata = json.loads((folder / "_METADATA").read_text())
    metadata["tree_metadata"]["evil"] = {
        "key_metadata": [{"key": "../../etc", "key_type": 2}],
        "value_metadata": {"value_type": "jax.Array"},
    }
    (folder / "_METADATA").write_text(json.dumps(metadata))
    with pytest.raises(CheckpointError, match="lead outside it"):
        read_checkpoint(folder)


@pytest.mark.parametrize(("name", "package"), [("ssog.msgpack", "msgpack"), ("ssog-orbax", "tensorstore")])
def test_a_reader_that_is_not_installed_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CheckpointError, match=f"needs the package {package} to read: pip install"):
        read_checkpoint(DATA / name)
