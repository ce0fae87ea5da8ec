"""Precisions, tied weights, other picture sizes, and files in parts: the numbers that come out are those that went in."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor

from gaussport.errors import CheckpointError, ConfigurationError, UsageError
from gaussport.models.checkpoint import Wishes, build_classifier, read_checkpoint, write_checkpoint
from gaussport.models.checkpoint.resizing import resized_positions
from gaussport.models.classifier import Classifier
from gaussport.models.image.wishes import PictureWishes
from tests.models.checkpoints import PREPROCESSING, good_checkpoint, save, torch_document

GOOD = good_checkpoint()
DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str
)
@pytest.mark.parametrize("form", ["a.pt", "a.safetensors"])
def test_every_precision_comes_out_as_its_own_numbers(dtype: torch.dtype, form: str, tmp_path: Path) -> None:
    cast = {name: tensor.to(dtype) for name, tensor in GOOD.state_dict.items()}
    save_file(cast, tmp_path / form) if form.endswith("safetensors") else save(tmp_path / form, cast)
    found = read_checkpoint(tmp_path / form)
    assert found.stored_dtypes == (str(dtype).removeprefix("torch."),)
    assert all(torch.equal(found.state_dict[name], tensor.float()) for name, tensor in cast.items())


def test_weights_that_were_one_stay_one(tmp_path: Path) -> None:
    """A graph stores each parameter once, so that one that stays one costs its size once."""
    model = Classifier(GOOD.config)
    model.blocks[1] = model.blocks[0]
    built = build_classifier(read_checkpoint(save(tmp_path / "a.pt", model.double().state_dict())))
    assert built.get_parameter("blocks.0.mlp.0.weight") is built.get_parameter("blocks.1.mlp.0.weight")
    assert len(list(built.parameters())) == len(list(model.parameters())) < len(GOOD.state_dict)
    assert {parameter.dtype for parameter in built.parameters()} == {torch.float32}


def test_names_that_safetensors_left_out_because_they_are_tied(tmp_path: Path) -> None:
    model = Classifier(GOOD.config)
    model.blocks[1] = model.blocks[0]
    save_model(model, str(tmp_path / "a.safetensors"))
    found = read_checkpoint(tmp_path / "a.safetensors").state_dict
    assert found.keys() == model.state_dict().keys()
    assert found["blocks.1.attn.mu"] is found["blocks.0.attn.mu"]


# Other sizes


def test_positions_are_resized_bilinearly_between_cell_centres() -> None:
    rows, columns = torch.meshgrid(torch.arange(4.0), torch.arange(6.0), indexing="ij")
    plane = (2 * rows - 3 * columns).reshape(1, 24, 1)
    found = resized_positions(plane, (4, 6), (8, 12)).reshape(8, 12)
    # A plane stays a plane away from the border: cell i of twice as many lies at (i + 0.5) / 2 − 0.5.
    at = [(torch.arange(n) + 0.5) / 2 - 0.5 for n in (8, 12)]
    expected = 2 * at[0][:, None] - 3 * at[1][None, :]
    torch.testing.assert_close(found[1:-1, 1:-1], expected[1:-1, 1:-1])


def test_another_input_size_changes_positions_and_pictures_only(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.safetensors", GOOD)  # 32×32 of a shorter side of 40
    found = read_checkpoint(tmp_path / "a.safetensors", wishes=Wishes(input_size=(48, 64)))
    assert (found.config.image_size, found.resized_from) == ((48, 64), (32, 32))
    assert (found.preprocessing.size, found.preprocessing.resize_shorter) == ((48, 64), 80)
    assert found.state_dict["pos_embed"].shape == (1, 48, 32)
    same = [torch.equal(found.state_dict[name], tensor) for name, tensor in GOOD.state_dict.items() if name != "pos_embed"]
    assert all(same)
    assert build_classifier(found)(torch.zeros(2, 3, 48, 64)).shape == (2, 10)


@pytest.mark.parametrize("size", [(30, 32), (4, 32), (33, 33)])
def test_a_size_that_is_no_multiple_of_the_patch_is_refused(size: tuple[int, int], tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.safetensors", GOOD)
    with pytest.raises(ConfigurationError, match="each side must be a multiple of the patch, which is 8"):
        read_checkpoint(tmp_path / "a.safetensors", wishes=Wishes(input_size=size))


def test_a_crop_of_another_size_than_the_input_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.safetensors", GOOD)
    wishes = Wishes(input_size=(48, 48), pictures=PictureWishes(crop=(32, 32)))
    with pytest.raises(UsageError, match="is not the input size"):
        read_checkpoint(tmp_path / "a.safetensors", wishes=wishes)


# In parts


def sharded(folder: Path, tensors: dict[str, Tensor], form: str = "safetensors", **changes: Any) -> Path:
    """Three shards and their index, as Hugging Face writes them."""
    folder.mkdir(exist_ok=True)
    stem, suffix = {"safetensors": ("model", "safetensors"), "bin": ("pytorch_model", "bin")}[form]
    homes = {name: f"{stem}-{1 + n % 3:05}-of-00003.{suffix}" for n, name in enumerate(tensors)}
    for home in set(homes.values()):
        part = {name: tensor for name, tensor in tensors.items() if homes[name] == home}
        save_file(part, folder / home) if form == "safetensors" else save(folder / home, part)
    index = folder / f"{stem}.{suffix}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": homes | changes}))
    return index


@pytest.mark.parametrize("form", ["safetensors", "bin"])
@pytest.mark.parametrize("by", ["index", "folder"])
def test_shards_are_one_checkpoint(form: str, by: str, tmp_path: Path) -> None:
    index = sharded(tmp_path / "hub", GOOD.state_dict, form)
    (tmp_path / "hub" / "config.json").write_text(json.dumps(GOOD.config.to_json()))
    (tmp_path / "hub" / "preprocessor_config.json").write_text(
        json.dumps({"size": 32, "do_center_crop": False, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25]})
    )
    found = read_checkpoint(index if by == "index" else tmp_path / "hub")
    assert found.config == GOOD.config
    assert found.preprocessing == replace_fields(PREPROCESSING, resize_shorter=None)
    assert found.assumed == ("labels",)
    assert all(torch.equal(found.state_dict[name], tensor) for name, tensor in GOOD.state_dict.items())
    changed = sharded(tmp_path / "hub", {**GOOD.state_dict, "head.bias": torch.ones(10)}, form)
    assert read_checkpoint(changed).sha256 != found.sha256


def replace_fields(spec: Any, **changes: Any) -> Any:
    return spec.model_copy(update=changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head.bias": "../secret.safetensors"}, "names the shard '../secret.safetensors', which is no shard beside it"),
        ({"head.bias": "/etc/passwd"}, "which is no shard beside it"),
        (
            {"head.bias": "model-00004-of-00003.safetensors"},
            "names 4 shards but model-00004-of-00003.safetensors is missing",
        ),
        ({"head.scale": "model-00001-of-00003.safetensors"}, "lacks head.scale, which should be in it"),
        ({"head.bias": "model.safetensors.index.json"}, "which is no shard beside it"),
        ({"head.bias": 3}, "has no weight_map"),
    ],
)
def test_an_index_that_lies(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(sharded(tmp_path, GOOD.state_dict, **changes))
    assert words in str(caught.value)


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    index = sharded(tmp_path, GOOD.state_dict)
    shard = tmp_path / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003\.safetensors is truncated"):
        read_checkpoint(index)


def test_a_folder_with_several_checkpoints_asks_for_one(tmp_path: Path) -> None:
    for name in ("a.pt", "b.safetensors"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"is a folder with 2 checkpoints \(a\.pt, b\.safetensors\): give one of them"):
        read_checkpoint(tmp_path)
    (tmp_path / ".metadata").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"is a checkpoint of torch\.distributed: convert it"):
        read_checkpoint(tmp_path)


def test_a_folder_with_one_checkpoint_is_that_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model.safetensors", GOOD)
    (tmp_path / "README.md").write_text("a model")
    assert read_checkpoint(tmp_path).config == GOOD.config


@pytest.mark.parametrize("form", ["safetensors", "pt"])
def test_paths_that_are_no_text(form: str, tmp_path: Path) -> None:
    path = Path(f"{tmp_path}/odd-\udcff.{form}")
    if form == "pt":
        with path.open("wb") as file:
            torch.save(torch_document(GOOD), file)
    else:
        write_checkpoint(path, GOOD)
    found = read_checkpoint(path)
    assert found.config == GOOD.config
    found.source.encode()  # a name that can be printed
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"odd-\?\.(pt|safetensors) is (a )?truncated") as caught:
        read_checkpoint(path)
    str(caught.value).encode()
