"""Training improves, ends where it would have ended had it not been stopped, and sees the pixels that are served."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from gaussport.cli import main
from gaussport.errors import CheckpointError, DataError, UsageError
from gaussport.models.checkpoint import build_classifier, read_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.config import ClassifierConfig
from gaussport.models.data import data_set
from gaussport.models.image.preprocess import Preprocessing, to_pixels
from gaussport.models.presets import preset
from gaussport.models.training import PixelTensors, TrainingSettings, accuracy, pixel_tensors, train
from gaussport.models.training.augmentation import augment
from gaussport.models.training.loop import Step
from gaussport.models.training.optimizer import optimizer_for
from gaussport.models.training.schedule import learning_rate
from gaussport.models.training.settings import Augmentation

FAMILIES = ("ssog", "gma", "dot")
STILL = Augmentation(shift=0, scale=0, rotation_degrees=0)
SPEC = Preprocessing(size=(8, 8), channels="L", mean=(0.3,), std=(0.35,))
QUICK = TrainingSettings(epochs=3, batch_size=25, warmup_epochs=1, augmentation=replace(STILL, shift=0.1))


def small(family: str) -> ClassifierConfig:
    return preset(f"{family}-tiny", image_size=(8, 8), patch=4, channels=1)


@pytest.fixture(scope="module")
def digits() -> tuple[PixelTensors, PixelTensors]:
    """scikit-learn's 8×8 digits: 1,000 to train on, 300 held out."""
    bunch = load_digits()
    order = np.random.RandomState(0).permutation(len(bunch.target))
    levels = torch.from_numpy((bunch.images[order] * 15.9375).astype(np.uint8)).unsqueeze(1)
    targets = torch.from_numpy(bunch.target[order].astype(np.int64))
    return PixelTensors(levels[:1000], targets[:1000]), PixelTensors(levels[1000:1300], targets[1000:1300])


@pytest.mark.parametrize("family", FAMILIES)
def test_training_improves(family: str, digits: tuple[PixelTensors, PixelTensors]) -> None:
    reached: list[float] = []

    def watch(step: Step) -> None:
        if step.held_out is not None:
            reached.append(step.held_out)

    some = PixelTensors(digits[0].levels[:400], digits[0].targets[:400])
    hurried = replace(QUICK, epochs=4, batch_size=16, warmup_epochs=0, learning_rate=1e-2)
    classifier = train(small(family), some, digits[1], SPEC, hurried, watch=watch)
    assert reached[-1] > 0.5  # chance is 0.1
    assert accuracy(classifier, digits[1], SPEC) == reached[-1]
    assert not classifier.training


@pytest.mark.parametrize("family", FAMILIES)
def test_a_resumed_run_equals_an_uninterrupted_one(
    family: str, digits: tuple[PixelTensors, PixelTensors], tmp_path: Path
) -> None:
    some, held_out = PixelTensors(digits[0].levels[:130], digits[0].targets[:130]), digits[1]
    whole = train(small(family), some, held_out, SPEC, QUICK)

    def stop(step: Step) -> None:
        if (step.epoch, step.step) == (2, 8):  # in the middle of the second epoch
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(small(family), some, held_out, SPEC, QUICK, tmp_path / "run.state", watch=stop)
    torch.manual_seed(12345)  # a new process would have another global state
    resumed = train(small(family), some, held_out, SPEC, QUICK, tmp_path / "run.state", resume=True)
    differing = [name for name, tensor in whole.state_dict().items() if not torch.equal(tensor, resumed.state_dict()[name])]
    assert differing == []


def test_equal_seeds_give_equal_weights_and_others_do_not(digits: tuple[PixelTensors, PixelTensors]) -> None:
    some = PixelTensors(digits[0].levels[:50], digits[0].targets[:50])

    def head(seed: int) -> torch.Tensor:
        return train(small("dot"), some, digits[1], SPEC, replace(QUICK, epochs=1, seed=seed)).head.weight

    assert torch.equal(head(1), head(1))
    assert not torch.equal(head(1), head(2))


@pytest.mark.parametrize(
    ("change", "field"), [({"seed": 1}, "seed"), ({"learning_rate": 0.1}, "learning_rate"), ({"epochs": 4}, "epochs")]
)
def test_another_runs_state_is_refused(
    change: dict[str, float], field: str, digits: tuple[PixelTensors, PixelTensors], tmp_path: Path
) -> None:
    some = PixelTensors(digits[0].levels[:50], digits[0].targets[:50])
    train(small("dot"), some, digits[1], SPEC, QUICK, tmp_path / "run.state")
    with pytest.raises(CheckpointError, match=f"is of a run with {field} = "):
        train(small("dot"), some, digits[1], SPEC, replace(QUICK, **change), tmp_path / "run.state", resume=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [None, b"", b"not a state"])
def test_a_missing_or_damaged_state_is_refused(
    data: bytes | None, digits: tuple[PixelTensors, PixelTensors], tmp_path: Path
) -> None:
    if data is not None:
        (tmp_path / "run.state").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"nothing to resume|cannot be resumed from"):
        train(small("dot"), *digits, SPEC, QUICK, tmp_path / "run.state", resume=True)


def test_a_run_that_diverges_ends_with_advice(digits: tuple[PixelTensors, PixelTensors]) -> None:
    with pytest.raises(DataError, match=r"diverged.*lower --lr"):
        train(small("dot"), *digits, SPEC, replace(QUICK, learning_rate=1e30, warmup_epochs=0))


def test_batches_are_what_to_pixels_makes() -> None:
    digits = data_set("mnist")
    _, held_out, spec = pixel_tensors(digits, preset("ssog-mnist"))
    pixels, targets = held_out.batch(torch.tensor([7, 512]), spec)
    served = np.stack([to_pixels(digits.held_out.picture(index).convert("RGB"), spec) for index in (7, 512)])
    assert np.array_equal(pixels.numpy(), served)
    assert targets.tolist() == [digits.held_out.targets[7], digits.held_out.targets[512]]


def test_the_digits_preprocessing_is_theirs() -> None:
    train_digits, _, spec = pixel_tensors(data_set("mnist"), preset("ssog-mnist"))
    assert (spec.size, spec.channels, spec.background, spec.interpolation) == ((28, 28), "L", (0, 0, 0), "bilinear")
    scaled = train_digits.levels.double() / 255
    assert spec.mean == pytest.approx([scaled.mean().item()], abs=5e-5)
    assert spec.std == pytest.approx([scaled.std(correction=0).item()], abs=5e-5)


def test_no_augmentation_changes_nothing() -> None:
    pixels = torch.randn(4, 3, 9, 7)
    torch.testing.assert_close(augment(pixels, STILL, torch.Generator().manual_seed(0)), pixels, rtol=0, atol=1e-5)


def test_mirroring_mirrors_about_half_the_pictures() -> None:
    pixels = torch.randn(200, 1, 6, 6)
    mirrored = augment(pixels, replace(STILL, mirror=True), torch.Generator().manual_seed(0))
    turned = sum(torch.allclose(found, picture.flip(-1), atol=1e-5) for found, picture in zip(mirrored, pixels, strict=True))
    kept = sum(torch.allclose(found, picture, atol=1e-5) for found, picture in zip(mirrored, pixels, strict=True))
    assert turned + kept == 200
    assert 70 < turned < 130


def test_shifts_stay_within_their_limit() -> None:
    # One bright column in the middle of 21: shifted by at most 0.2 · 21 = 4.2 cells.
    pixels = torch.zeros(300, 1, 21, 21)
    pixels[..., 10] = 1
    found = augment(pixels, replace(STILL, shift=0.2), torch.Generator().manual_seed(0))
    centres = (found[:, 0].mean(1) * torch.arange(21)).sum(1)
    assert 3 < (centres - 10).abs().max() < 4.2 + 1e-3


def test_the_learning_rate_rises_then_falls_to_nearly_zero() -> None:
    rates = [learning_rate(step, 100, 10, 2.0) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert max(rates) == 2.0
    assert rates[55] == pytest.approx(1 + math.cos(math.pi / 2))
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 2e-3


def test_only_linear_maps_are_decayed() -> None:
    classifier = Classifier(small("ssog"))
    decayed, kept = optimizer_for(classifier, QUICK).param_groups
    names = {id(parameter): name for name, parameter in classifier.named_parameters()}
    assert (decayed["weight_decay"], kept["weight_decay"]) == (QUICK.weight_decay, 0)
    assert len(decayed["params"]) + len(kept["params"]) == len(names)
    assert {names[id(parameter)] for parameter in decayed["params"]} == {
        name for name in names.values() if name.endswith(".weight") and "norm" not in name
    }


@pytest.mark.parametrize("change", [{"epochs": 0}, {"batch_size": -1}, {"learning_rate": float("nan")}, {"seed": -1}])
def test_impossible_settings_are_refused_by_name(change: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(change))):
        replace(QUICK, **change)  # type: ignore[arg-type]


# The command


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two classes, told apart by brightness."""
    random = np.random.RandomState(0)
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for index in range(20):
            noise = random.randint(-30, 30, size=(36, 40, 3))
            Image.fromarray((level + noise).astype(np.uint8)).save(tmp_path / "pets" / name / f"{index}.png")
    return tmp_path / "pets"


def arguments(pets: Path, output: Path, *more: str) -> list[str]:
    words = ["train", "--preset", "dot-tiny", "--data", str(pets), "-o", str(output), "--epochs", "4", "--batch-size", "8"]
    return [*words, "--lr", "0.003", *more]


def test_the_command_trains_on_a_folder(pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "pets.safetensors"
    assert main(arguments(pets, output, "--json")) == 0
    result = json.loads(capsys.readouterr().out)
    checkpoint = read_checkpoint(output)
    assert checkpoint.labels == ("dark", "light")
    assert checkpoint.metrics["held_out_accuracy"] == result["held_out_accuracy"] == 1.0
    assert checkpoint.preprocessing.tensor_shape == (3, 32, 32)
    assert build_classifier(checkpoint)(torch.zeros(1, 3, 32, 32)).shape == (1, 2)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pets", "pets.safetensors"]


def test_a_stopped_command_goes_on_to_the_same_file(
    pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(arguments(pets, tmp_path / "whole.safetensors")) == 0

    def interrupt(*_: object) -> float:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # between the first epoch's state and its accuracy
        patched.setattr("gaussport.models.training.loop.accuracy", interrupt)
        assert main(arguments(pets, tmp_path / "stopped.safetensors")) == 130
    assert not (tmp_path / "stopped.safetensors").exists()
    assert "go on with --resume" in capsys.readouterr().err
    assert main(arguments(pets, tmp_path / "stopped.safetensors", "--resume")) == 0
    assert (tmp_path / "stopped.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_a_folder_that_is_not_writable_is_refused_before_the_training(
    pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)  # root may write everywhere
    assert main(arguments(pets, tmp_path / "a.safetensors")) == 2
    assert capsys.readouterr().err == f"gaussport train: the output's folder {tmp_path} is not writable: choose another\n"


@pytest.mark.parametrize(
    ("name", "more", "code", "words"),
    [
        ("pets", (), 2, "must end in .safetensors"),
        ("none/a.safetensors", (), 2, "does not exist"),
        ("a" * 300 + ".safetensors", (), 2, "cannot be written: File name too long"),
        ("a" * 243 + ".safetensors", (), 2, "cannot be written: File name too long"),  # too long for the state beside it
        ("old.safetensors", (), 2, "exists: choose another name, or give --force"),
        ("a.safetensors", ("--resume",), 1, "nothing to resume"),
        ("stopped.safetensors", (), 2, "go on with --resume, or start again with --force"),
        ("a.safetensors", ("--threads", "0"), 2, "--threads is 0"),
        ("a.safetensors", ("--preset", "dot-huge"), 2, "no preset 'dot-huge'"),
        ("a.safetensors", ("--epochs", "0"), 2, "epochs is 0"),
        ("a.safetensors", ("--data", "none"), 1, "the data folder none does not exist"),
    ],
)
def test_the_command_refuses_in_one_line(
    name: str, more: tuple[str, ...], code: int, words: str, pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.safetensors").write_bytes(b"old")
    (tmp_path / "stopped.safetensors.state").touch()
    assert main(arguments(pets, tmp_path / name, *more)) == code
    last = capsys.readouterr().err.rstrip("\n").rpartition("\n")[2]
    assert last.startswith("gaussport train: ")
    assert words in last
    assert (tmp_path / "old.safetensors").read_bytes() == b"old"
