"""The configuration from weights alone, and its disagreements with what anybody states."""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussport.errors import ConfigurationError, GaussportError, UsageError
from gaussport.models.attention.gma import GMAConfig
from gaussport.models.attention.ssog import SSOGConfig
from gaussport.models.checkpoint import Checkpoint, Wishes, build_classifier, read_checkpoint, survey_checkpoint
from gaussport.models.checkpoint.settling import settle
from gaussport.models.checkpoint.stated import settings_statement
from gaussport.models.classifier import Classifier
from gaussport.models.config import ClassifierConfig
from gaussport.models.presets import preset
from tests.models.checkpoints import good_checkpoint, save

GOOD = good_checkpoint()
UNSEEN = {"attention.max_offset", "attention.sigma_floor", "gelu", "norm_epsilon", "image_size"}


def bare(path: Path, config: ClassifierConfig = GOOD.config) -> Path:
    return save(path / "a.pt", Classifier(config).state_dict())


def read(path: Path, **settings: Any) -> Checkpoint:
    return read_checkpoint(path, wishes=Wishes(settings=settings))


@st.composite
def configurations(draw: st.DrawFn) -> ClassifierConfig:
    """Whatever shapes can tell: square grids, and the defaults of what leaves no trace."""
    heads, patch, cells = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    count = st.integers(1, 5)
    ssog = st.builds(SSOGConfig, heads=st.just(heads), atoms=count, steered=st.booleans())
    width = st.none() | count
    gma = st.builds(GMAConfig, heads=st.just(heads), components=count, routing_width=count, value_width=width)
    dim = heads * draw(st.integers(1, 6))
    attention = draw(ssog | gma)
    if isinstance(attention, GMAConfig) and attention.value_width == dim // heads:
        attention = replace(attention, value_width=None)  # the same model
    return ClassifierConfig(
        attention=attention,
        classes=draw(st.integers(1, 9)),
        dim=dim,
        depth=draw(st.integers(1, 3)),
        image_size=(patch * cells, patch * cells),
        patch=patch,
        channels=draw(st.sampled_from((1, 3))),
        mlp_ratio=draw(st.sampled_from((1.0, 2.0, 2.5, 4.0))),
    )


@given(config=configurations())
@settings(max_examples=25, deadline=None)
def test_shapes_alone_tell_the_model(config: ClassifierConfig) -> None:
    with torch.device("meta"):
        model = Classifier(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = settle([], shapes, {}, [], flax=False, source="a.pt").config("a.pt")
    assert isinstance(found, ClassifierConfig)
    with torch.device("meta"):
        assert {name: tuple(tensor.shape) for name, tensor in Classifier(found).state_dict().items()} == shapes
    hidden = round(config.dim * config.mlp_ratio)
    assert replace(found, mlp_ratio=config.mlp_ratio) == config
    assert round(found.dim * found.mlp_ratio) == hidden


def test_bare_weights_give_the_same_logits_and_say_what_was_assumed(tmp_path: Path) -> None:
    model = Classifier(GOOD.config).eval()
    found = read_checkpoint(save(tmp_path / "a.pt", model.state_dict()))
    assert set(found.assumed) == {"preprocessing", "labels", *UNSEEN}
    pixels = torch.randn(2, 3, 32, 32)
    assert torch.equal(build_classifier(found)(pixels), model(pixels))


def test_heads_of_a_dot_product_are_asked_for(tmp_path: Path) -> None:
    path = bare(tmp_path, preset("dot-tiny"))
    with pytest.raises(ConfigurationError, match=r"no shape tells how many heads there are: give --set heads=N"):
        read(path)
    assert read(path, heads=4).config.attention.heads == 4


def test_a_grid_that_is_not_square_is_asked_for(tmp_path: Path) -> None:
    path = bare(tmp_path, preset("ssog-tiny", image_size=(24, 40)))
    with pytest.raises(ConfigurationError, match=r"its grid is not square: give --set image_size=\[HEIGHT,WIDTH\]"):
        read(path)
    found = read(path, image_size=[24, 40])
    assert found.config.image_size == (24, 40)
    assert "image_size" not in found.assumed
    assert read(path, image_size="24x40").config == found.config


def test_a_stated_grid_that_has_other_cells_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"pos_embed has shape \(1, 16, 32\) .* \(1, 12, 32\): check image_size"):
        build_classifier(read(bare(tmp_path), image_size=[24, 32]))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("classes", 11, r"classes is 11 in config\.json but 10 in a\.pt by head\.weight \[10, 32\]"),
        ("dim", 64, r"dim is 64 in config\.json but 32 in a\.pt"),
        ("depth", 3, r"depth is 3 in config\.json but 2 in a\.pt by blocks\.0 … blocks\.1"),
        ("patch", 4, r"patch is 4 in config\.json but 8"),
        ("mlp_ratio", 3.0, r"mlp_ratio is 3\.0 in config\.json but 2\.0"),
        ("attention", {"family": "ssog", "heads": 4}, r"heads is 4 in config\.json but 2 in a\.pt by blocks\.0\.attn\.mu"),
        ("attention", {"family": "ssog", "heads": 2, "steered": False}, r"steered is False in config\.json but True"),
        ("attention", {"family": "gma", "heads": 2}, r"family is 'gma' in config\.json but 'ssog'"),
        ("attention", {"family": "linear"}, r"family is 'linear' in config\.json but 'ssog' in a\.pt"),
    ],
)
def test_a_configuration_beside_the_file_must_agree_with_its_shapes(
    field: str, value: object, words: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**GOOD.config.to_json(), field: value}))
    with pytest.raises(ConfigurationError, match=words):
        read(bare(tmp_path))


def test_two_statements_that_differ_are_refused_with_both(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"attention": {"sigma_floor": 0.5}}')
    with pytest.raises(ConfigurationError, match=r"sigma_floor is 0\.1 in --set but 0\.5 in config\.json: leave one"):
        read(bare(tmp_path), sigma_floor=0.1)


@pytest.mark.parametrize("name", ["config.json", "config.yaml", "config.yml", "given.json", "given.yaml"])
def test_a_part_of_a_configuration_is_enough(name: str, tmp_path: Path) -> None:
    text = '{"gelu": "tanh", "attention": {"max_offset": 2.5}, "labels": null}'
    if "yaml" in name or "yml" in name:
        text = "gelu: tanh\nattention:\n  max_offset: 2.5\n"
    (tmp_path / name).write_text(text.replace(', "labels": null', ""))
    found = read_checkpoint(bare(tmp_path), tmp_path / name if name.startswith("given") else None)
    assert found.config == replace(GOOD.config, gelu="tanh", attention=SSOGConfig(heads=2, max_offset=2.5))
    assert set(found.assumed) == {"preprocessing", "labels", *UNSEEN} - {"gelu", "attention.max_offset"}


def test_the_words_of_others_are_understood(tmp_path: Path) -> None:
    foreign: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32}
    foreign |= {"model_type": "vit", "hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "architectures": ["X"]}
    foreign |= {"id2label": {str(n): f"kind {n}" for n in range(10)}, "patch_size": 8, "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(foreign))
    found = read(bare(tmp_path, preset("dot-tiny")))
    assert (found.config.attention.heads, found.config.gelu, found.config.norm_epsilon) == (4, "tanh", 1e-12)
    assert found.labels[3] == "kind 3"
    assert found.assumed == ("preprocessing", "attention.causal")


@pytest.mark.parametrize("as_namespace", [True, False])
def test_a_training_scripts_arguments_fill_gaps_and_prove_nothing(as_namespace: bool, tmp_path: Path) -> None:
    arguments = {"heads": 4, "num_classes": 1000, "lr": 0.1, "epsilon": 1e-8, "activation": "relu"}
    content = {"model": Classifier(preset("dot-tiny")).state_dict(), "epoch": 9}
    content["args"] = Namespace(**arguments) if as_namespace else arguments
    path = save(tmp_path / "a.pt", content)
    assert read(path).config == replace(preset("dot-tiny"), attention=replace(preset("dot-tiny").attention, heads=4))
    assert read(path, heads=8).config.attention.heads == 8


def test_every_fact_has_an_origin(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"norm_epsilon": 1e-6}')
    survey = survey_checkpoint(bare(tmp_path), None, Wishes(settings={"gelu": "tanh"}))
    origins = {fact.field: fact.origin for fact in survey.settled.facts}
    assert origins["gelu"] == "--set"
    assert origins["norm_epsilon"] == "config.json"
    assert origins["classes"] == "head.weight [10, 32]"
    assert origins["attention.sigma_floor"] == "default"
    assert origins["image_size"] == "default: a square grid"


@pytest.mark.parametrize("name", ["colour", "attention.colour", "Heads"])
def test_a_field_that_there_is_not_cannot_be_set(name: str) -> None:
    with pytest.raises(UsageError, match=rf"--set {name}: the configuration has no such field, it has family, heads"):
        settings_statement({name: 1})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "is not YAML"),
        ("- a\n- b", "is not a mapping"),
        ("1: 2", "is not a mapping"),
        ("a: &a [x]\nb: *a", "it has an alias"),
        ("!!python/object/apply:os.mkdir [PWNED]", "is not YAML"),
        ("a: !!python/name:os.system", "is not YAML"),
    ],
)
def test_yaml_that_is_none_or_wants_more(text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        read(bare(tmp_path))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "PWNED").exists()


def test_labels_in_the_forms_that_people_use(tmp_path: Path) -> None:
    names = [f"kind {n}" for n in range(10)]
    forms: list[dict[str, Any]] = [
        {"labels": names},
        {"class_names": names},
        {"classes": names},
        {"class_to_idx": {name: index for index, name in enumerate(names)}},
        {"id2label": dict(enumerate(names))},
    ]
    for form in forms:
        content = {"state_dict": GOOD.state_dict, "config": GOOD.config.to_json(), **form}
        assert read(save(tmp_path / "a.pt", content)).labels == tuple(names), form


def test_placeholders_for_labels_are_no_labels(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {n: f"LABEL_{n}" for n in range(10)}}))
    assert "labels" in read(bare(tmp_path)).assumed


@pytest.mark.parametrize("labels", [["a"] * 10, [*"abcdefghi", "a"]])
def test_two_classes_of_one_name_are_refused(labels: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"name two classes 'a', 0 and \d"):
        read_checkpoint(bare(tmp_path), labels=labels)


def test_no_configuration_of_any_kind_is_a_traceback(tmp_path: Path) -> None:
    path = bare(tmp_path)
    odd: list[Any] = [None, [], {}, "x", -1, 1e400, [1, 2, 3], {"a": 1}, True]
    for field in ("classes", "image_size", "patch", "gelu", "mlp_ratio", "attention", "labels", "preprocessing"):
        for value in odd:
            (tmp_path / "c.json").write_text(json.dumps({"attention": {}, field: value}))
            try:
                build_classifier(read_checkpoint(path, tmp_path / "c.json"))
            except GaussportError as error:
                assert "\n" not in str(error)  # noqa: PT017 - some values are fine
