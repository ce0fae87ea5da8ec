"""Presets have the published sizes, and parameters the published names."""

import re

import pytest
import torch

from gaussport.errors import ConfigurationError
from gaussport.models.attention import families
from gaussport.models.classifier import Classifier
from gaussport.models.presets import names, preset


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {key: tuple(tensor.shape) for key, tensor in Classifier(preset(name)).state_dict().items()}


@pytest.mark.parametrize(
    ("name", "count"),
    [("ssog-d256", 2_998_464), ("ssog-d384", 11_961_304), ("dot-d256", 3_661_032), ("dot-d384", 14_944_360)],
)
def test_published_presets_have_the_published_parameter_counts(name: str, count: int) -> None:
    with torch.device("meta"):
        classifier = Classifier(preset(name))
    assert sum(parameter.numel() for parameter in classifier.parameters()) == count


def test_every_family_comes_in_every_size() -> None:
    assert {name.split("-")[0] for name in names()} == set(families())
    assert len(names()) == len(set(names()))


STEERING = {
    f"attn.{probe}.{kind}" for probe in ("mu_delta", "sigma_delta", "lambda_gate") for kind in ("weight", "bias")
} | {f"attn.raw_{probe}_scale" for probe in ("mu_delta", "sigma_delta", "lambda_gate")}
ATTENTION = {
    "ssog": {"attn.v.weight", "attn.out.weight", "attn.mu", "attn.raw_sigma", "attn.log_lambda", "attn.raw_temperature"}
    | STEERING,
    "gma": {f"attn.{name}" for name in ("q.weight", "k.weight", "v.weight", "out.weight", "mu", "omega", "alpha")},
    "dot": {f"attn.{name}.weight" for name in "qkv"} | {"attn.out.weight"},
}
TRUNK = {f"{module}.{kind}" for module in ("norm1", "norm2", "mlp.0", "mlp.2") for kind in ("weight", "bias")}
OUTSIDE = {f"{module}.{kind}" for module in ("patch_embed", "norm", "head") for kind in ("weight", "bias")} | {"pos_embed"}


@pytest.mark.parametrize("family", sorted(ATTENTION))
def test_parameters_are_named_as_in_published_checkpoints(family: str) -> None:
    found = set(shapes(f"{family}-mnist"))
    in_blocks = {name for name in found if name.startswith("blocks.")}
    assert found - in_blocks == OUTSIDE
    assert {re.sub(r"^blocks\.\d+\.", "", name) for name in in_blocks} == TRUNK | ATTENTION[family]
    assert {int(name.split(".")[1]) for name in in_blocks} == set(range(4))


def test_ssog_parameters_have_the_published_shapes() -> None:
    found = shapes("ssog-d256")
    assert found["blocks.0.attn.mu"] == (4, 4, 2)
    assert found["blocks.0.attn.raw_sigma"] == (4, 4, 2)
    assert found["blocks.0.attn.log_lambda"] == (4, 4)
    assert found["blocks.0.attn.raw_temperature"] == ()
    assert found["blocks.0.attn.mu_delta.weight"] == (32, 256)
    assert found["blocks.0.attn.lambda_gate.weight"] == (16, 256)
    assert found["patch_embed.weight"] == (256, 768)
    assert found["pos_embed"] == (1, 196, 256)


def test_an_unknown_preset_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"no preset 'ssog-huge'; choose one of .*ssog-d256"):
        preset("ssog-huge")
