"""A sequence classifier's checkpoint survives a file; its configuration is told by shapes where those tell it; faults are
refused by name; `gaussport inspect` shows it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from gaussport.cli import main
from gaussport.errors import CheckpointError, ConfigurationError, UsageError
from gaussport.models.attention import families
from gaussport.models.checkpoint import (
    SequenceCheckpoint,
    Wishes,
    build_classifier,
    read_any_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from gaussport.models.checkpoint.settling import settle
from gaussport.models.image.wishes import PictureWishes
from gaussport.models.sequence import SequenceClassifier, SequenceConfig
from gaussport.models.text import Tokenization
from tests.sequence.subjects import PRESETS, classifier, documents

LABELS = ("north", "east", "south", "west")


def checkpoint(preset: str = "gma-bytes-tiny-causal") -> SequenceCheckpoint:
    model = classifier(preset)
    state_dict = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    return SequenceCheckpoint(model.config, state_dict, Tokenization.of_bytes(256), LABELS, {"held_out_accuracy": 0.5})


@pytest.mark.parametrize("preset", PRESETS)
def test_a_checkpoint_survives_its_file(preset: str, tmp_path: Path) -> None:
    written, path = checkpoint(preset), tmp_path / "a.safetensors"
    write_checkpoint(path, written)
    read = read_any_checkpoint(path)
    assert isinstance(read, SequenceCheckpoint)
    assert (read.config, read.preprocessing, read.labels) == (written.config, written.preprocessing, LABELS)
    assert (read.metrics, read.assumed, read.source) == (written.metrics, (), "a.safetensors")
    (row,) = documents([70])
    with torch.inference_mode():
        torch.testing.assert_close(build_classifier(read)(row[None]), classifier(preset)(row[None]), atol=0, rtol=0)


@st.composite
def configurations(draw: st.DrawFn) -> SequenceConfig:
    heads, causal = draw(st.integers(1, 4)), draw(st.booleans())
    dim = heads * draw(st.integers(1, 8))
    gma = {
        "components": draw(st.integers(1, 9)),
        "routing_width": draw(st.integers(1, 9)),
        "value_width": draw(st.none() | st.integers(1, 9)),
    }
    family = draw(st.sampled_from(["gma", "dot"]))
    options: dict[str, Any] = {"causal": causal, **(gma if family == "gma" else {})}
    attention = families()[family].config(heads=heads, **options)
    return SequenceConfig(
        attention=attention,
        classes=draw(st.integers(1, 9)),
        dim=dim,
        depth=draw(st.integers(1, 3)),
        convolution=draw(st.integers(2, 9)) if causal else 2 * draw(st.integers(1, 4)) + 1,
        mlp_ratio=draw(st.sampled_from([1.0, 2.0, 4.0])),
        trained_length=draw(st.integers(1, 4096)),
        pooling=draw(st.sampled_from(["mean", "last"])),
    )


@given(config=configurations())
@settings(max_examples=25, deadline=None)
def test_shapes_alone_tell_the_model_but_for_what_leaves_no_trace(config: SequenceConfig) -> None:
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in SequenceClassifier(config).state_dict().items()}
    settled = settle([], shapes, {}, [], flax=False, source="a.pt")
    if config.family == "dot":
        assert list(settled.missing) == ["attention.heads"]
        return
    assert not settled.missing
    found = {fact.field: fact.value for fact in settled.facts}
    told = ("classes", "dim", "depth", "vocabulary", "convolution", "mlp_ratio")
    assert {name: found[name] for name in told} == {name: getattr(config, name) for name in told}
    assert {"attention.causal", "pooling", "trained_length", "pad"} <= set(settled.assumed)


def test_bare_weights_are_read_with_what_the_caller_states(tmp_path: Path) -> None:
    whole, path = checkpoint(), tmp_path / "bare.safetensors"
    save_file(whole.state_dict, path)
    wishes = Wishes(settings={"causal": True, "trained_length": 64})
    read = read_any_checkpoint(path, labels=LABELS, wishes=wishes)
    assert read.config == whole.config
    assert read.preprocessing == whole.preprocessing
    assert set(read.assumed) == {
        "preprocessing",
        "attention.epsilon",
        "attention.variance_floor",
        "pad",
        "pooling",
        "gelu",
        "norm_epsilon",
    }


def test_other_tokens_than_bytes_must_be_stated(tmp_path: Path) -> None:
    config = replace(classifier("gma-bytes-tiny").config, vocabulary=30, pad=0)
    path = tmp_path / "words.safetensors"
    save_file(SequenceClassifier(config).state_dict(), path)
    with pytest.raises(ConfigurationError, match="nobody says how text becomes the 30 tokens of words"):
        read_any_checkpoint(path, wishes=Wishes(settings={"pad": 0}))
    stated = {"kind": "tokenizers", "file": "t.json", "vocabulary": 30, "pad": 0, "max_tokens": 9, "stride": 9}
    (tmp_path / "config.json").write_text(json.dumps({"config": config.to_json(), "preprocessing": stated}))
    assert read_any_checkpoint(path).preprocessing == Tokenization.model_validate(stated)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"stride": 0}, r"preprocessing\.stride of a\.safetensors is impossible"),
        ({"stride": 999}, "is impossible: stride is 999, more than a window"),
        (
            {"kind": "tokenizers", "file": "t.json", "vocabulary": 9, "pad": 0},
            "a vocabulary of 9 with 0 as pad, but the configuration has 257",
        ),
    ],
)
def test_a_tokenization_that_does_not_fit_is_refused(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    whole, path = checkpoint(), tmp_path / "a.safetensors"
    write_checkpoint(path, whole)
    (tmp_path / "other.json").write_text(json.dumps({"preprocessing": {**whole.preprocessing.model_dump(), **changes}}))
    with pytest.raises(ConfigurationError, match=complaint):
        read_any_checkpoint(path, tmp_path / "other.json")


def test_what_is_said_of_pictures_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, checkpoint())
    for wishes in (Wishes(input_size=(8, 8)), Wishes(pictures=PictureWishes(crop=(8, 8)))):
        with pytest.raises(UsageError, match=r"a\.safetensors is a classifier of sequences: leave out"):
            read_any_checkpoint(path, wishes=wishes)
    with pytest.raises(CheckpointError, match="is a classifier of sequences, but one of pictures is needed"):
        read_checkpoint(path)


def test_weights_that_do_not_fit_name_the_field_behind(tmp_path: Path) -> None:
    whole = checkpoint()
    wrong = replace(whole, config=replace(whole.config, convolution=7))
    with pytest.raises(ConfigurationError, match=r"blocks\.0\.conv\.weight has shape .*: check convolution, which is 7"):
        build_classifier(wrong)


def test_inspect_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, checkpoint())
    assert main(["inspect", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["config"]["attention"]["family"] == "gma"
    assert shown["preprocessing"]["kind"] == "bytes"
    assert shown["labels"] == list(LABELS)
    assert main(["inspect", str(path)]) == 0
    assert "bytes" in capsys.readouterr().out
