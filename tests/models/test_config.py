"""Configurations travel as JSON and come back equal; impossible ones are refused by the field's name."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussport.errors import ConfigurationError
from gaussport.models.attention import AttentionConfig
from gaussport.models.attention.dot import DotConfig
from gaussport.models.attention.gma import GMAConfig
from gaussport.models.attention.ssog import SSOGConfig
from gaussport.models.config import ClassifierConfig
from gaussport.models.presets import names, preset

small = st.integers(1, 64)
positive = st.floats(1e-6, 100)
attentions: st.SearchStrategy[AttentionConfig] = st.one_of(
    st.builds(DotConfig, heads=small),
    st.builds(SSOGConfig, heads=small, atoms=small, steered=st.booleans(), max_offset=positive, sigma_floor=positive),
    st.builds(
        GMAConfig, heads=small, components=small, routing_width=small, value_width=st.none() | small, causal=st.booleans()
    ),
)


@st.composite
def configurations(draw: st.DrawFn) -> ClassifierConfig:
    attention, patch = draw(attentions), draw(small)
    return ClassifierConfig(
        attention=attention,
        classes=draw(small),
        dim=attention.heads * draw(small),
        depth=draw(small),
        image_size=(patch * draw(small), patch * draw(small)),
        patch=patch,
        channels=draw(small),
        mlp_ratio=draw(positive),
        gelu=draw(st.sampled_from(("exact", "tanh"))),
        norm_epsilon=draw(positive),
    )


@given(config=configurations())
def test_a_configuration_survives_json(config: ClassifierConfig) -> None:
    assert ClassifierConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("name", names())
def test_every_preset_survives_json(name: str) -> None:
    assert ClassifierConfig.from_json(json.loads(json.dumps(preset(name).to_json()))) == preset(name)


COUNTS = ("classes", "dim", "depth", "patch", "channels")
NUMBERS = ("mlp_ratio", "norm_epsilon")
IMPOSSIBLE = st.integers(max_value=0) | st.booleans() | st.text() | st.just(float("nan")) | st.lists(st.integers())


@given(field=st.sampled_from(COUNTS), value=IMPOSSIBLE | st.floats())
def test_a_field_that_is_no_count_is_named(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{field} is .* but must be a whole number above zero"):
        ClassifierConfig.from_json({**preset("ssog-tiny").to_json(), field: value})


@given(field=st.sampled_from(NUMBERS), value=IMPOSSIBLE)
def test_a_field_that_is_no_positive_number_is_named(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{field} is .* but must be a positive number"):
        ClassifierConfig.from_json({**preset("ssog-tiny").to_json(), field: value})


@given(family=st.none() | st.lists(st.text()) | st.text() | st.integers())
def test_an_attention_family_that_does_not_exist_is_refused(family: object) -> None:
    with pytest.raises(ConfigurationError, match="whose family is one of dot, gma, ssog"):
        ClassifierConfig.from_json({**preset("ssog-tiny").to_json(), "attention": {"family": family, "heads": 2}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image_size": [30, 32]}, r"image_size is \[30, 32\] but each side must be a multiple of patch, which is 8"),
        ({"image_size": [32]}, r"image_size is \[32\] but must be two whole numbers"),
        ({"dim": 33}, "heads is 2 but must divide dim, which is 33"),
        ({"gelu": "fast"}, "gelu is 'fast'"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"attention": None}, "family is one of dot, gma, ssog"),
        ({"attention": {"family": "linear"}}, "family is one of dot, gma, ssog"),
        ({"attention": {"family": "ssog", "heads": 2, "R": 4}}, "unknown field 'R'"),
        ({"attention": {"family": "ssog"}}, "incomplete: .*heads"),
        ({"attention": {"family": "gma", "heads": 2, "components": 0}}, "components is 0"),
    ],
)
def test_an_impossible_configuration_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ClassifierConfig.from_json({**preset("ssog-tiny").to_json(), **change})


def test_a_missing_field_is_named() -> None:
    document = preset("ssog-tiny").to_json()
    del document["depth"]
    with pytest.raises(ConfigurationError, match="depth"):
        ClassifierConfig.from_json(document)
