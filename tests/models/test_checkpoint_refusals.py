"""Files that are no good checkpoint: each refused in one sentence that names what is wrong, quickly, running nothing."""

import functools
import json
import os
import pickle
import resource
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussport.errors import CheckpointError, ConfigurationError, GaussportError
from gaussport.models.checkpoint import build_classifier, read_checkpoint, write_checkpoint
from tests.models.checkpoints import good_checkpoint, save, torch_document, with_weights

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 12345\n"


def refusal(path: Path, config: Path | None = None) -> str:
    """The one sentence that reading and building the checkpoint ends with."""
    with pytest.raises((CheckpointError, ConfigurationError)) as caught:
        build_classifier(read_checkpoint(path, config))
    message = str(caught.value)
    assert "\n" not in message
    assert "weights_only" not in message
    return message


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


# Not a checkpoint


def test_a_missing_path(tmp_path: Path) -> None:
    assert "there is no checkpoint" in refusal(tmp_path / "none.pt")


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    assert "not a regular file" in refusal(tmp_path / "pipe.pt")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty (0 bytes)"),
        (LFS_POINTER, "Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "HTML page"),
        (b"\n <html>log in</html>", "HTML page"),
        (b'{"weight_map": {}}', "JSON text"),
        (b"hello, world, this is text", "starts with the bytes 68 65 6c 6c"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 64, "starts with the bytes 89 50"),
        (b"PK\x03\x04" + b"\0" * 400, "truncated zip archive"),
        (b"\x80\x02", "cannot be unpickled"),
    ],
)
@pytest.mark.parametrize("name", ["a.pt", "a.ckpt"])
def test_what_the_file_looks_like_is_said(data: bytes, words: str, name: str, tmp_path: Path) -> None:
    assert words in refusal(write(tmp_path / name, data))


def test_a_zip_of_something_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.zeros(3))
    assert "is a zip archive, but not one of torch.save" in refusal((tmp_path / "a.npz").rename(tmp_path / "a.pt"))


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "a.pt", "w", ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\0" * 50_000_000)
    assert "claims to unpack to 50,000,000 bytes" in refusal(tmp_path / "a.pt")


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize(
    ("name", "legacy", "words"),
    [("a.pt", False, "truncated zip"), ("a.pt", True, "truncated or damaged"), ("a.safetensors", False, "truncated")],
    ids=["zip", "pickle", "safetensors"],
)
def test_a_truncated_file(name: str, legacy: bool, words: str, fraction: float, tmp_path: Path) -> None:
    if name.endswith(".safetensors"):
        write_checkpoint(tmp_path / name, good_checkpoint())
    else:
        save(tmp_path / name, torch_document(good_checkpoint()), legacy)
    data = (tmp_path / name).read_bytes()
    assert words in refusal(write(tmp_path / name, data[: int(fraction * len(data))]))


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "data",
    [
        safetensors(b"{}", length=2**60),
        safetensors(b"{}", length=2**64 - 1),
        safetensors({"w": {**ONE, "data_offsets": [-4, 0]}}, b"\0" * 4),
        safetensors({"w": {**ONE, "data_offsets": [4, 0]}}, b"\0" * 4),
        safetensors({"w": {**ONE, "data_offsets": [0, 2**60]}}, b"\0" * 4),
        safetensors({"w": {**ONE, "shape": [2**60], "data_offsets": [0, 2**62]}}, b"\0" * 4),
        safetensors({"w": {**ONE, "shape": [2**62, 2**62]}}, b"\0" * 4),
        safetensors({"w": {**ONE, "shape": [-1]}}, b"\0" * 4),
        safetensors({"w": {**ONE, "dtype": "F7"}}, b"\0" * 4),
        safetensors({"w": ONE}, b"\0" * 3),
        safetensors({"w": ONE}, b"\0" * 8),
        safetensors({"a": ONE, "b": ONE}, b"\0" * 4),
        safetensors(b'{"w": '),
        safetensors(b"{" + b'"a":{' * 50_000),
        safetensors({"__metadata__": {"gaussport": "not json"}, "w": ONE}, b"\0" * 4),
        safetensors({"__metadata__": {"gaussport": "[]"}, "w": ONE}, b"\0" * 4),
        safetensors({}),
    ],
)
def test_a_lying_safetensors_header_costs_neither_time_nor_memory(data: bytes, tmp_path: Path) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    refusal(write(tmp_path / "a.safetensors", data))
    assert time.process_time() - started < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_a_view_that_claims_more_numbers_than_the_file_holds(tmp_path: Path) -> None:
    huge = {"head.bias": torch.zeros(1).expand(2**40)}
    assert "head.bias in a.pt claims" in refusal(save(tmp_path / "a.pt", huge))


@given(
    place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), form=st.sampled_from(("zip", "pickle", "safetensors"))
)
@settings(max_examples=60, deadline=None)
def test_any_damaged_byte_is_refused_or_harmless(place: float, byte: int, form: str, damaged: Callable[..., Path]) -> None:
    with suppress(GaussportError):
        build_classifier(read_checkpoint(damaged(form, place, byte)))


@pytest.fixture(scope="session")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, float, int], Path]:
    """A good file with one byte replaced."""
    folder = tmp_path_factory.mktemp("damaged")
    write_checkpoint(folder / "good.safetensors", good_checkpoint())
    save(folder / "zip.pt", torch_document(good_checkpoint()))
    save(folder / "pickle.pt", torch_document(good_checkpoint()), legacy=True)
    good = {"safetensors": folder / "good.safetensors", "zip": folder / "zip.pt", "pickle": folder / "pickle.pt"}

    def damage(form: str, place: float, byte: int) -> Path:
        data = bytearray(good[form].read_bytes())
        data[int(place**3 * len(data))] = byte  # the interesting bytes come first
        return write(folder / f"damaged{good[form].suffix}", bytes(data))

    return damage


# Pickles that bring more than tensors


class Runs:
    """Pickles into a call that makes the folder `marker`."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("form", ["zip", "pickle", "plain"])
def test_a_pickle_that_wants_to_run_code_never_does(form: str, tmp_path: Path) -> None:
    content = {**torch_document(good_checkpoint()), "extra": Runs(tmp_path / "PWNED")}
    if form == "plain":
        write(tmp_path / "a.pt", pickle.dumps(Runs(tmp_path / "PWNED"), protocol=2))
    else:
        save(tmp_path / "a.pt", content, legacy=form == "pickle")
    message = refusal(tmp_path / "a.pt")
    assert "wants to use posix.mkdir" in message
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "pickle"])
def test_a_pickle_under_the_name_safetensors(legacy: bool, tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", torch_document(good_checkpoint()), legacy)
    assert "is named .safetensors but holds a" in refusal(tmp_path / "a.safetensors")


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "pickle"])
def test_an_object_that_is_not_read_is_named_with_its_key(legacy: bool, tmp_path: Path) -> None:
    content = {**torch_document(good_checkpoint()), "optimizer_factory": functools.partial(dict)}
    message = refusal(save(tmp_path / "a.pt", content, legacy))
    assert "wants to use functools.partial" in message
    assert "under the key 'optimizer_factory'" in message


@pytest.mark.parametrize("protocol", range(6))
def test_a_plain_pickle_names_what_it_wants(protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps({"weights": [1.0], "hook": Runs(tmp_path / "PWNED")}, protocol=protocol)
    message = refusal(write(tmp_path / "a.pt", data))
    assert "posix.mkdir" in message
    assert "under the key 'hook'" in message
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], "holds a list"),
        ({}, "holds no tensors"),
        ({"state_dict": {}}, "holds no tensors"),
        ({"epoch": 3}, "holds no tensors where weights belong, but 'epoch' of type int"),
        ({"state_dict": {"a": {"b": 1}}}, "holds 'a.b' of type int under state_dict"),
        ({1: torch.zeros(1)}, "the 1 names in a.pt are not those of a classifier"),
        (
            {"state_dict": {"a": torch.zeros(1)}, "model": {"a": torch.ones(1)}},
            "2 sets of raw weights, state_dict (raw), model (raw): name one with --weights KEY",
        ),
        ({"a": torch.zeros(3, dtype=torch.int64)}, "a in a.pt holds int64"),
        ({"a": torch.zeros(3).to_sparse()}, "a in a.pt is a sparse"),
        ({"a": torch.zeros(3, device="meta")}, "a in a.pt is a sparse, quantised or empty"),
    ],
)
def test_a_file_without_a_state_dict(content: object, words: str, tmp_path: Path) -> None:
    assert words in refusal(save(tmp_path / "a.pt", content))


# Numbers


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_named(number: float, tmp_path: Path) -> None:
    bad = torch.zeros(32)
    bad[5] = number
    write_checkpoint(tmp_path / "a.safetensors", with_weights(good_checkpoint(), blocks__1__norm2__bias=bad))
    assert "blocks.1.norm2.bias in a.safetensors has 1 of 32 numbers" in refusal(tmp_path / "a.safetensors")


def test_a_float64_that_overflows_float32_is_named(tmp_path: Path) -> None:
    checkpoint = with_weights(good_checkpoint(), head__bias=torch.full((10,), 1e300, dtype=torch.float64))
    write_checkpoint(tmp_path / "a.safetensors", checkpoint)
    assert "head.bias in a.safetensors has 10 of 10" in refusal(tmp_path / "a.safetensors")


# Weights against the configuration


def test_bare_weights_ask_for_what_no_shape_tells(tmp_path: Path) -> None:
    message = refusal(save(tmp_path / "a.pt", good_checkpoint("dot").state_dict))
    assert "no shape tells how many heads there are: give --set heads=N, or a configuration with --config FILE" in message


def test_missing_parameters_are_counted_and_named() -> None:
    good = good_checkpoint()
    rest = {name: tensor for name, tensor in good.state_dict.items() if "attn.mu" not in name}
    with pytest.raises(
        CheckpointError, match=r"lacks 6 of the configuration's \d+ parameters \(blocks\.0\.attn\.mu, .*, …\)"
    ):
        build_classifier(replace(good, state_dict=rest))


def test_unexpected_parameters_are_counted_and_named() -> None:
    with pytest.raises(CheckpointError, match=r"has 1 that the configuration does not know \(head\.scale\)"):
        build_classifier(with_weights(good_checkpoint(), head__scale=torch.ones(1)))


@pytest.mark.parametrize(
    ("change", "name", "shapes", "field"),
    [
        ({"classes": 11}, "head.weight", "(10, 32)|(11, 32)", "classes, which is 11"),
        ({"image_size": (64, 64)}, "pos_embed", "(1, 16, 32)|(1, 64, 32)", "image_size, which is [64, 64]"),
        ({"dim": 64}, "pos_embed", "(1, 16, 32)|(1, 16, 64)", "dim, which is 64"),
        ({"channels": 1}, "patch_embed.weight", "(32, 192)|(32, 64)", "channels, which is 1"),
        ({"mlp_ratio": 3.0}, "blocks.0.mlp.0.weight", "(64, 32)|(96, 32)", "mlp_ratio, which is 3.0"),
        ({"heads": 4}, "blocks.0.attn.mu", "(2, 4, 2)|(4, 4, 2)", "attention.heads, which is 4"),
        ({"atoms": 3}, "blocks.0.attn.mu", "(2, 4, 2)|(2, 3, 2)", "attention.atoms, which is 3"),
    ],
)
def test_a_wrong_shape_gives_both_shapes_and_the_field(change: dict[str, int], name: str, shapes: str, field: str) -> None:
    good = good_checkpoint()
    in_attention = set(change) <= {"heads", "atoms"}
    changes = {"attention": replace(good.config.attention, **change)} if in_attention else change
    with pytest.raises(ConfigurationError) as caught:
        build_classifier(replace(good, config=replace(good.config, **changes)))
    for words in (name, *shapes.split("|"), field):
        assert words in str(caught.value)


def test_another_family_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match=r"check attention.family, which is gma"):
        build_classifier(replace(good_checkpoint("ssog"), config=good_checkpoint("gma").config))


def test_a_given_configuration_must_agree_with_the_stored_one(tmp_path: Path) -> None:
    # Another head count of the dot-product twin changes no shape: only the stored configuration can tell.
    good = good_checkpoint("dot")
    other = replace(good.config, attention=replace(good.config.attention, heads=4))
    (tmp_path / "c.json").write_text(json.dumps(other.to_json()))
    write_checkpoint(tmp_path / "a.safetensors", good)
    assert "heads is 4 in c.json but 2 in a.safetensors" in refusal(tmp_path / "a.safetensors", tmp_path / "c.json")


@pytest.mark.parametrize("count", [0, 9, 11])
def test_labels_must_be_one_a_class(count: int, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.safetensors", good_checkpoint())
    with pytest.raises(
        ConfigurationError, match=f"{count} labels were given for a.safetensors, but its head has 10 classes"
    ):
        read_checkpoint(tmp_path / "a.safetensors", labels=["x"] * count)


@pytest.mark.parametrize("labels", ["abcdefghij", [1] * 10, [""] * 10, {"a": 1}])
def test_labels_must_be_names(labels: object, tmp_path: Path) -> None:
    document = {**torch_document(good_checkpoint()), "labels": labels}
    assert "labels of a.pt must be a list of names" in refusal(save(tmp_path / "a.pt", document))


@pytest.mark.parametrize(
    ("preprocessing", "words"),
    [
        ({"size": [16, 16]}, "makes pictures of (3, 16, 16)"),
        ({"size": [32, 32], "std": [0, 1, 1]}, "preprocessing of a.pt is impossible"),
        ({"size": [32, 32], "crop": 3}, "preprocessing.crop of a.pt is impossible"),
        ("none", "preprocessing of a.pt is impossible"),
    ],
)
def test_preprocessing_must_fit(preprocessing: object, words: str, tmp_path: Path) -> None:
    document = {**torch_document(good_checkpoint()), "preprocessing": preprocessing}
    assert words in refusal(save(tmp_path / "a.pt", document))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"config": 3}', "`config` of c.json is not a JSON object"),
        (b'{"attention": null}', "attention is None"),
    ],
)
def test_a_configuration_file_that_is_none(text: bytes, words: str, tmp_path: Path) -> None:
    save(tmp_path / "a.pt", good_checkpoint().state_dict)
    assert words in refusal(tmp_path / "a.pt", write(tmp_path / "c.json", text))


def test_a_configuration_path_that_leads_nowhere(tmp_path: Path) -> None:
    save(tmp_path / "a.pt", good_checkpoint().state_dict)
    assert "there is no configuration file" in refusal(tmp_path / "a.pt", tmp_path / "none.json")
    assert "is a folder" in refusal(tmp_path / "a.pt", tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"classes": 10**12},
        {"depth": 10**12},
        {"dim": 32.5},
        {"dim": 2**62},
        {"patch": 3.2},
        {"classes": "10"},
        {"classes": None},
        {"image_size": "wide"},
        {"image_size": [32.0, 32]},
        {"mlp_ratio": float("nan")},
        {"attention": {"family": []}},
        {"attention": {"family": "ssog", "heads": 3}},
        {"attention": {"family": "ssog", "heads": 2, "atoms": 0}},
        {"gelu": "relu"},
        {"colour": 1},
    ],
    ids=str,
)
def test_an_impossible_configuration_is_refused_quickly(change: dict[str, object], tmp_path: Path) -> None:
    good = good_checkpoint()
    started = time.process_time()
    refusal(save(tmp_path / "a.pt", {**torch_document(good), "labels": None, "config": {**good.config.to_json(), **change}}))
    assert time.process_time() - started < 2
