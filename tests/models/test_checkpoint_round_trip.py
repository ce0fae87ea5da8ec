"""Good checkpoints, in every form they are accepted in, give the weights, labels and preprocessing that went in."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint import build_classifier, read_checkpoint, write_checkpoint
from gaussport.models.classifier import Classifier
from tests.models.checkpoints import LABELS, PREPROCESSING, good_checkpoint, save, torch_document

FAMILIES = ("ssog", "gma", "dot")


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_written_is_read_back(family: str, tmp_path: Path) -> None:
    good = good_checkpoint(family)
    write_checkpoint(tmp_path / "a.safetensors", good)
    found = read_checkpoint(tmp_path / "a.safetensors")
    assert (found.config, found.preprocessing, found.labels, found.metrics) == (
        good.config,
        PREPROCESSING,
        LABELS,
        good.metrics,
    )
    assert found.state_dict.keys() == good.state_dict.keys()
    assert all(torch.equal(found.state_dict[name], tensor) for name, tensor in good.state_dict.items())
    assert (found.source, found.weights, found.stored_dtypes) == ("a.safetensors", "raw", ("float32",))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_built_classifier_answers_as_the_original(family: str, tmp_path: Path) -> None:
    good = good_checkpoint(family)
    original = Classifier(good.config).eval()
    original.load_state_dict(good.state_dict)
    write_checkpoint(tmp_path / "a.safetensors", good)
    built = build_classifier(read_checkpoint(tmp_path / "a.safetensors"))
    pixels = torch.randn(3, 3, 32, 32)
    assert not built.training
    assert torch.equal(built(pixels), original(pixels))


def test_equal_checkpoints_give_equal_bytes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.safetensors", good_checkpoint())
    write_checkpoint(tmp_path / "b.safetensors", good_checkpoint())
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    import hashlib

    write_checkpoint(tmp_path / "a.safetensors", good_checkpoint())
    digest = hashlib.sha256((tmp_path / "a.safetensors").read_bytes()).hexdigest()
    assert read_checkpoint(tmp_path / "a.safetensors").sha256 == digest


def test_building_shares_no_memory_with_the_checkpoint() -> None:
    good = good_checkpoint()
    built = build_classifier(good)
    with torch.no_grad():
        built.head.bias.fill_(7)
    assert not bool((good.state_dict["head.bias"] == 7).any())


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt"])
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "pickle"])
@pytest.mark.parametrize("weights_key", ["state_dict", "model", "model_state_dict"])
def test_torch_files_are_read(suffix: str, legacy: bool, weights_key: str, tmp_path: Path) -> None:
    good = good_checkpoint()
    found = read_checkpoint(save(tmp_path / f"a{suffix}", torch_document(good, weights_key), legacy))
    assert (found.config, found.labels) == (good.config, LABELS)
    assert all(torch.equal(found.state_dict[name], tensor) for name, tensor in good.state_dict.items())


def test_a_bare_state_dict_takes_its_configuration_from_a_file(tmp_path: Path) -> None:
    good = good_checkpoint()
    (tmp_path / "c.json").write_text(json.dumps(good.config.to_json()))
    found = read_checkpoint(save(tmp_path / "a.pt", good.state_dict), tmp_path / "c.json")
    assert found.config == good.config
    assert found.labels == tuple("0123456789")
    assert (found.preprocessing.size, found.preprocessing.mean, found.preprocessing.std) == (
        (32, 32),
        (0.5,) * 3,
        (0.5,) * 3,
    )


def test_a_configuration_file_may_bring_labels_and_preprocessing(tmp_path: Path) -> None:
    good = good_checkpoint()
    document = {
        "config": good.config.to_json(),
        "labels": list(LABELS),
        "preprocessing": PREPROCESSING.model_dump(mode="json"),
    }
    (tmp_path / "c.json").write_text(json.dumps(document))
    found = read_checkpoint(save(tmp_path / "a.pt", good.state_dict), tmp_path / "c.json")
    assert (found.labels, found.preprocessing) == (LABELS, PREPROCESSING)


def test_given_labels_win(tmp_path: Path) -> None:
    found = read_checkpoint(
        save(tmp_path / "a.pt", torch_document(good_checkpoint())), labels=[f"class {i}" for i in range(10)]
    )
    assert found.labels[3] == "class 3"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_become_float32_and_are_remembered(dtype: torch.dtype, tmp_path: Path) -> None:
    good = good_checkpoint()
    cast = {name: tensor.to(dtype) for name, tensor in good.state_dict.items()}
    found = read_checkpoint(save(tmp_path / "a.pt", {**torch_document(good), "state_dict": cast}))
    assert found.stored_dtypes == (str(dtype).removeprefix("torch."),)
    assert all(torch.equal(found.state_dict[name], tensor.float()) for name, tensor in cast.items())


def test_mixed_precisions_are_all_remembered(tmp_path: Path) -> None:
    good = good_checkpoint()
    mixed = {name: tensor.half() if name.startswith("head") else tensor for name, tensor in good.state_dict.items()}
    write_checkpoint(tmp_path / "a.safetensors", replace(good, state_dict=mixed))
    found = read_checkpoint(tmp_path / "a.safetensors")
    assert found.stored_dtypes == ("float16", "float32")
    assert {tensor.dtype for tensor in found.state_dict.values()} == {torch.float32}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gaussport.models.checkpoint.writing.os.fsync", full)
    with pytest.raises(CheckpointError, match="no space left on device"):
        write_checkpoint(tmp_path / "a.safetensors", good_checkpoint())
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.safetensors", b"old")]


@pytest.mark.parametrize("where", ["missing/a.safetensors", "folder"])
def test_a_place_that_cannot_be_written_is_named(where: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_checkpoint(tmp_path / where, good_checkpoint())


def test_what_nobody_stated_is_listed_as_assumed(tmp_path: Path) -> None:
    good = good_checkpoint()
    (tmp_path / "config.json").write_text(json.dumps(good.config.to_json()))
    torch.save(good.state_dict, tmp_path / "bare.pt")
    write_checkpoint(tmp_path / "whole.safetensors", good)
    labels = [str(n) for n in range(good.config.classes)]
    config = tmp_path / "config.json"
    assert read_checkpoint(tmp_path / "bare.pt", config).assumed == ("preprocessing", "labels")
    assert read_checkpoint(tmp_path / "bare.pt", config, labels).assumed == ("preprocessing",)
    assert read_checkpoint(tmp_path / "whole.safetensors").assumed == ()
