"""Names that wrappers and other projects give to the same parameters: read as the good file, to the bit, or refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gaussport.errors import CheckpointError, UsageError
from gaussport.models.attention.gma import GMAConfig
from gaussport.models.checkpoint import Wishes, read_checkpoint
from gaussport.models.checkpoint.names import named
from gaussport.models.checkpoint.wishes import renames
from gaussport.models.classifier import Classifier
from gaussport.models.presets import preset
from tests.models.checkpoints import good_checkpoint, save

GOOD = good_checkpoint()


def read(path: Path, content: object, *rules: str) -> dict[str, Tensor]:
    return read_checkpoint(save(path / "a.pt", content), wishes=Wishes(rename=renames(rules))).state_dict


def assert_good(found: dict[str, Tensor], good: dict[str, Tensor] | None = None) -> None:
    good = GOOD.state_dict if good is None else good
    assert found.keys() == good.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in good.items())


@given(prefixes=st.lists(st.sampled_from(["module.", "_orig_mod.", "model.", "net."]), max_size=5))
@settings(max_examples=50, deadline=None)
def test_prefixes_in_any_order_and_nesting_come_off(prefixes: list[str]) -> None:
    wrapped = {"".join(prefixes) + name: tensor for name, tensor in GOOD.state_dict.items()}
    found = named(wrapped, (), "a.pt")
    assert_good(found.tensors)
    assert "".join(found.prefixes) == "".join(prefixes)


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch.compile, on itself
def test_what_torch_itself_wraps_comes_off(tmp_path: Path) -> None:
    classifier = Classifier(GOOD.config)
    classifier.load_state_dict(GOOD.state_dict)
    compiled: Any = torch.compile(classifier)
    averaged = torch.optim.swa_utils.AveragedModel(nn.DataParallel(compiled))
    assert next(iter(averaged.module.state_dict())).startswith("module._orig_mod.")
    assert_good(read(tmp_path, averaged.state_dict()))


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch.compile, on itself
def test_blocks_that_were_compiled_one_by_one(tmp_path: Path) -> None:
    classifier = Classifier(GOOD.config)
    classifier.load_state_dict(GOOD.state_dict)
    for index, block in enumerate(classifier.blocks):
        classifier.blocks[index] = torch.compile(block)  # type: ignore[assignment]
    assert any(name.startswith("blocks.1._orig_mod.attn") for name in classifier.state_dict())
    assert_good(read(tmp_path, classifier.state_dict()))


def test_lightning(tmp_path: Path) -> None:
    content = {
        "epoch": 3,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": {f"model.{name}": tensor for name, tensor in GOOD.state_dict.items()},
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1}]}],
        "lr_schedulers": [],
        "hyper_parameters": {"lr": 0.1, "max_offset": 3.0},
    }
    path = save(tmp_path / "a.ckpt", content)
    assert_good(read_checkpoint(path).state_dict)
    assert getattr(read_checkpoint(path).config.attention, "max_offset") == 3.0  # noqa: B009 - of one family only


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "net."])
def test_a_prefix_that_only_some_have_is_refused(prefix: str, tmp_path: Path) -> None:
    half = {prefix * (n % 2) + name: tensor for n, (name, tensor) in enumerate(GOOD.state_dict.items())}
    with pytest.raises(CheckpointError, match=rf"26 of 53 names in a\.pt begin with {prefix}") as caught:
        read(tmp_path, half)
    assert "taken off only where all have it" in str(caught.value)


def test_a_prefix_that_nobody_knows_is_named_with_its_cure(tmp_path: Path) -> None:
    alien = {f"foo.{name}": tensor for name, tensor in GOOD.state_dict.items()}
    with pytest.raises(CheckpointError, match=r"every one begins with foo\.: take that off with --rename '\^foo\\\.='"):
        read(tmp_path, alien)
    assert_good(read(tmp_path, alien, r"^foo\.="))


def test_a_prefix_in_the_middle_of_a_name_stays(tmp_path: Path) -> None:
    odd = {**GOOD.state_dict, "head.model.weight": torch.ones(1)}
    assert "head.model.weight" in named(odd, (), "a.pt").tensors


def test_renames_are_tried_in_order_and_may_leave_out(tmp_path: Path) -> None:
    other = {name.replace("blocks.", "stage_"): tensor for name, tensor in GOOD.state_dict.items()}
    other = {f"model.{name}": tensor for name, tensor in other.items()} | {"criterion.weight": torch.ones(3)}
    assert_good(read(tmp_path, other, r"^model\.=", r"stage_(\d+)=blocks.\1", r"^criterion\..*="))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["nothing=something"], r"the rename nothing=something changes no name in a\.pt"),
        ([r"norm\d=norm"], r"both blocks\.0\.norm\.weight: be narrower"),
        ([".*="], r"the renames leave out all \d+ names in a\.pt: be narrower"),
        (["^model=", r"^.+$="], r"changes no name in a\.pt"),
        ([r"[a-o].*=", r"[^a].*="], r"the renames leave out all \d+ names"),
    ],
)
def test_a_rename_that_cannot_be_meant(rules: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=words):
        read(tmp_path, GOOD.state_dict, *rules)


@pytest.mark.parametrize("text", ["blocks", "=x", "(=x", r"a=\1", "[=x"])
def test_a_rename_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="the rename"):
        renames([text])


def test_the_words_of_other_projects(tmp_path: Path) -> None:
    """timm's names and layouts for a dot-product twin."""
    good = good_checkpoint("dot")
    foreign = {}
    for name, tensor in good.state_dict.items():
        name = name.replace("mlp.0", "mlp.fc1").replace("mlp.2", "mlp.fc2").replace("attn.out", "attn.proj")
        if ".attn.q." in name:
            parts = [good.state_dict[name.replace(".q.", f".{letter}.")] for letter in "qkv"]
            foreign[name.replace(".q.", ".qkv.")] = torch.cat(parts)
        elif name == "patch_embed.weight":  # rows, columns, channels → a convolution's channels, rows, columns
            foreign["patch_embed.proj.weight"] = tensor.reshape(32, 8, 8, 3).permute(0, 3, 1, 2)
        elif name == "patch_embed.bias":
            foreign["patch_embed.proj.bias"] = tensor
        elif ".attn.k." not in name and ".attn.v." not in name:
            foreign[name] = tensor
    found = read_checkpoint(save(tmp_path / "a.pt", foreign), wishes=Wishes(settings={"heads": 2}))
    assert_good(found.state_dict, good.state_dict)


def test_a_convolution_of_patches_gives_the_linear_layers_answer(tmp_path: Path) -> None:
    conv = nn.Conv2d(3, 32, 8, stride=8)
    assert conv.bias is not None
    weights = {"patch_embed.proj.weight": conv.weight, "patch_embed.proj.bias": conv.bias}
    rest = {name: tensor for name, tensor in GOOD.state_dict.items() if not name.startswith("patch_embed")}
    classifier = Classifier(GOOD.config)
    classifier.load_state_dict(read(tmp_path, {**rest, **weights}))
    from gaussport.models.classifier import patches

    pixels = torch.randn(2, 3, 32, 32)
    ours = classifier.patch_embed(patches(pixels, 8))
    torch.testing.assert_close(ours, conv(pixels).flatten(2).transpose(1, 2), rtol=0, atol=1e-5)


def test_mixtures_kept_head_by_head(tmp_path: Path) -> None:
    config = preset("gma-tiny", attention=GMAConfig(heads=2, components=4, routing_width=3, value_width=5))
    good = dict(Classifier(config).state_dict())
    foreign = {}
    for name, tensor in good.items():
        part, _, rest = name.partition(".attn.")
        if not rest:
            foreign[name] = tensor
            continue
        letter = rest.partition(".")[0]
        width = {"q": 3, "k": 3, "v": 5, "out": 5}.get(letter)
        for head in range(2):
            if width is None:
                foreign[f"{part}.attn.heads.{head}.{rest}"] = tensor[head]
            else:
                piece = tensor.split(width, dim=1 if letter == "out" else 0)[head]
                foreign[f"{part}.attn.heads.{head}.{rest.replace(letter, f'{letter}_proj')}"] = piece
    assert any(name.endswith("attn.heads.1.out_proj.weight") for name in foreign)
    found = read_checkpoint(save(tmp_path / "a.pt", foreign))
    assert_good(found.state_dict, good)
    assert found.config.attention == config.attention
