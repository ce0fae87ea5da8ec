"""A sequence configuration survives JSON, and an impossible one is refused by the name of its field."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gaussport.errors import ConfigurationError
from gaussport.models.attention import families
from gaussport.models.sequence import SequenceConfig, sequence_preset
from gaussport.models.sequence.presets import sequence_names


@pytest.mark.parametrize("name", sequence_names())
def test_a_preset_survives_json(name: str) -> None:
    config = sequence_preset(name)
    assert SequenceConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"classes": 0}, "classes is 0"),
        ({"pad": 257}, "pad is 257 but must be one of the vocabulary's 257 tokens"),
        ({"pad": True}, "pad is True"),
        ({"convolution": 4}, "convolution is 4 but must be odd and at least 3"),
        ({"convolution": 1}, "convolution is 1"),
        ({"pooling": "max"}, "pooling is 'max' but must be 'mean' or 'last'"),
        ({"gelu": "fast"}, "gelu is 'fast'"),
        ({"dim": 33}, "heads is 2 but must divide dim, which is 33"),
        ({"mlp_ratio": 0}, "mlp_ratio is 0"),
        ({"attention": families()["ssog"].config(heads=2)}, "'ssog', which mixes a grid: a sequence takes gma or dot"),
    ],
)
def test_an_impossible_configuration_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        replace(sequence_preset("gma-bytes-tiny"), **changes)


def test_a_causal_convolution_may_be_even() -> None:
    assert replace(sequence_preset("gma-bytes-tiny-causal"), convolution=4).causal


def test_unknown_fields_and_presets_are_refused() -> None:
    document = sequence_preset("gma-bytes-tiny").to_json()
    with pytest.raises(ConfigurationError, match="unknown field 'window'"):
        SequenceConfig.from_json({**document, "window": 3})
    with pytest.raises(ConfigurationError, match="attention is None"):
        SequenceConfig.from_json({**document, "attention": None})
    with pytest.raises(ConfigurationError, match=r"no preset 'gma-novel' of a sequence; choose one of gma-manpages, "):
        sequence_preset("gma-novel")
