"""Files with several sets of weights: one documented choice, said and stored, and never another than the one asked for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint import Checkpoint, Wishes, build_classifier, read_checkpoint
from gaussport.models.checkpoint.weight_sets import weight_sets
from tests.models.checkpoints import good_checkpoint, save

RAW = good_checkpoint().state_dict
EMA = {name: tensor + 0.5 for name, tensor in RAW.items()}


def prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


FORMS: dict[str, Any] = {
    "timm": {"state_dict": RAW, "state_dict_ema": prefixed("module.", EMA), "epoch": 3},
    "model_ema": {"model": RAW, "model_ema": EMA},
    "yolox": {"model": RAW, "ema": {"module": EMA, "updates": 10}},
    "decay beside": {"model_state_dict": RAW, "ema_state_dict": {"decay": 0.999, "num_updates": 3, "model": EMA}},
    "lightning": {"state_dict": prefixed("model.", RAW) | prefixed("ema_model.module.", EMA)},
    "lightning's callback": {"state_dict": EMA, "current_model_state": prefixed("model.", RAW), "averaging_state": {}},
    "latent diffusion": {
        "state_dict": prefixed("model.", RAW)
        | {f"model_ema.{name.replace('.', '')}": tensor for name, tensor in EMA.items()}
        | {"model_ema.decay": torch.tensor(0.999), "model_ema.num_updates": torch.tensor(3)}
    },
    "flax": {"params": RAW, "ema_params": EMA},
}


def bias(checkpoint: Checkpoint) -> Tensor:
    return checkpoint.state_dict["head.bias"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("wish", "kind"), [(None, "ema"), ("ema", "ema"), ("raw", "raw")])
def test_each_set_is_found_under_its_kind(form: str, wish: str | None, kind: str, tmp_path: Path) -> None:
    found = read_checkpoint(save(tmp_path / "a.pt", FORMS[form]), wishes=Wishes(weights=wish))
    assert found.weights == kind
    expected = EMA if kind == "ema" else RAW
    assert all(torch.equal(found.state_dict[name], tensor) for name, tensor in expected.items())


def torch_ema(averages: list[Tensor]) -> dict[str, Any]:
    """`ExponentialMovingAverage.state_dict()` of torch_ema, whose list is in the order of `module.parameters()`."""
    return {"decay": 0.999, "num_updates": 7, "shadow_params": averages, "collected_params": None}


def averages_in_order() -> list[Tensor]:
    return [EMA[name] for name, _ in build_classifier(good_checkpoint()).named_parameters()]


@pytest.mark.parametrize(("wish", "kind"), [(None, "ema"), ("ema", "ema"), ("raw", "raw"), ("ema.shadow_params", "ema")])
def test_an_average_without_names_takes_those_beside_it(wish: str | None, kind: str, tmp_path: Path) -> None:
    content = {"state_dict": prefixed("module.", RAW), "ema": torch_ema(averages_in_order())}
    found = read_checkpoint(save(tmp_path / "a.pt", content), wishes=Wishes(weights=wish))
    assert found.weights == kind
    expected = EMA if kind == "ema" else RAW
    assert all(torch.equal(found.state_dict[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"model": RAW, "ema": torch_ema(averages_in_order()[1:])},
            "do not have their shapes in that order: call ema.copy_to",
        ),
        ({"model": RAW, "ema": torch_ema(averages_in_order()[::-1])}, "do not have their shapes in that order"),
        ({"ema": torch_ema(averages_in_order())}, "nothing beside it names them: call ema.copy_to"),
        (torch_ema(averages_in_order()), "the moving average under shadow_params of a.pt is a list of"),
    ],
    ids=["one is missing", "another order", "alone", "alone in the file"],
)
def test_an_average_that_nothing_names_is_refused(content: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", content)
    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(path)
    if "model" in content:
        assert torch.equal(bias(read_checkpoint(path, wishes=Wishes(weights="raw"))), RAW["head.bias"])


@pytest.mark.parametrize(
    "content",
    [{"state_dict_ema": prefixed("module.", EMA)}, {"ema": EMA}, prefixed("module.", EMA) | {"n_averaged": torch.tensor(9)}],
)
def test_an_average_alone_is_an_average(content: dict[str, Any], tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", content)
    assert read_checkpoint(path).weights == "ema"
    assert torch.equal(bias(read_checkpoint(path)), EMA["head.bias"])
    with pytest.raises(CheckpointError, match="has no weights but averages; it has"):
        read_checkpoint(path, wishes=Wishes(weights="raw"))


def test_an_average_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", {"state_dict": RAW})
    with pytest.raises(CheckpointError, match=r"has no moving average; it has state_dict \(raw\)"):
        read_checkpoint(path, wishes=Wishes(weights="ema"))


def test_a_set_may_be_named_by_its_key(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", {"model": RAW, "state_dict": EMA})
    with pytest.raises(CheckpointError, match=r"2 sets of raw weights, model \(raw\), state_dict \(raw\): name one"):
        read_checkpoint(path)
    found = read_checkpoint(path, wishes=Wishes(weights="state_dict"))
    assert (found.weights, found.weights_key) == ("raw", "state_dict")
    assert torch.equal(bias(found), EMA["head.bias"])
    with pytest.raises(CheckpointError, match="no weights under 'generator'"):
        read_checkpoint(path, wishes=Wishes(weights="generator"))


def test_a_set_under_a_key_that_nobody_knows_is_found_when_it_is_the_only_one(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", {"classifier_v2": RAW, "optimizer": {"state": {}}, "epoch": 1})
    assert read_checkpoint(path).weights_key == "classifier_v2"


def test_an_average_that_lacks_a_parameter_is_not_filled_from_the_other_set(tmp_path: Path) -> None:
    from gaussport.models.checkpoint import build_classifier

    rest = {name: tensor for name, tensor in EMA.items() if name != "norm.bias"}
    path = save(tmp_path / "a.pt", {"state_dict": RAW, "state_dict_ema": rest})
    with pytest.raises(CheckpointError, match=r"lacks 1 of the configuration's 53 parameters \(norm\.bias\)"):
        build_classifier(read_checkpoint(path))


def test_an_optimisers_numbers_are_no_weights() -> None:
    adam = {"state": {"head.bias": {"exp_avg": RAW["head.bias"]}}, "param_groups": []}
    assert [one.key for one in weight_sets({"optimizer": adam, "net_g": RAW}, "a.pt")] == ["net_g"]
