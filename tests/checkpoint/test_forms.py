"""How pictures were prepared, in the forms that people have it: the same tensor as the form's own reference makes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from gaussport.errors import ConfigurationError, UsageError
from gaussport.models.checkpoint import Wishes, read_checkpoint
from gaussport.models.checkpoint.description import preprocessing_from
from gaussport.models.checkpoint.resizing import resized_preprocessing
from gaussport.models.checkpoint.wishes import image_size
from gaussport.models.image.preprocess import Preprocessing, to_pixels
from gaussport.models.image.wishes import PictureWishes, numbers
from tests.models.checkpoints import good_checkpoint, save, torch_document

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET: dict[str, Any] = {"image_mean": list(MEAN), "image_std": list(STD)}
SQUARE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8))


def read(document: object, size: tuple[int, int] = (32, 32), **wishes: Any) -> Preprocessing:
    return preprocessing_from(document, PictureWishes(**wishes), size, 3, "a.json")[0]


HF_CROP = {
    **IMAGENET,
    "do_resize": True,
    "size": {"shortest_edge": 40},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 32, "width": 32},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
}
HF_EXACT = {**IMAGENET, "size": {"height": 32, "width": 32}, "resample": 2, "image_processor_type": "ViTImageProcessor"}
TIMM = {"input_size": [3, 32, 32], "interpolation": "bicubic", "crop_pct": 0.8, "mean": list(MEAN), "std": list(STD)}


@pytest.mark.parametrize(
    ("document", "shorter", "interpolation"),
    [
        (HF_CROP, 40, "bicubic"),
        ({**HF_CROP, "size": 40, "crop_size": 32}, 40, "bicubic"),
        ({**HF_CROP, "size": {"shortest_edge": 32}, "crop_pct": 0.8, "do_center_crop": False}, 40, "bicubic"),
        (HF_EXACT, None, "bilinear"),
        ({**HF_EXACT, "size": 32}, None, "bilinear"),
        (TIMM, 40, "bicubic"),
        ({"pretrained_cfg": TIMM, "architecture": "vit"}, 40, "bicubic"),
        ({**TIMM, "crop_mode": "squash", "crop_pct": 1.0}, None, "bicubic"),
        ({"preprocessing": {"size": [32, 32], "mean": MEAN, "std": STD, "interpolation": "lanczos"}}, None, "lanczos"),
    ],
    ids=lambda value: "",
)
def test_each_form_gives_its_preprocessing(document: dict[str, Any], shorter: int | None, interpolation: str) -> None:
    found = read(document)
    assert (found.size, found.resize_shorter, found.interpolation) == ((32, 32), shorter, interpolation)
    np.testing.assert_allclose(found.mean, MEAN)
    np.testing.assert_allclose(found.std, STD)


def reference(document: dict[str, Any]) -> NDArray[np.float64]:
    """What a Hugging Face processor does to a square picture, step by step as its fields say."""
    edge, crop = document["size"]["shortest_edge"], document["crop_size"]["height"]
    picture = np.asarray(SQUARE.resize((edge, edge), Image.Resampling(document["resample"])), dtype=np.float64)
    at = (edge - crop) // 2
    numbers = picture[at : at + crop, at : at + crop] * (document["rescale_factor"] if document["do_rescale"] else 1)
    if document["do_normalize"]:
        numbers = (numbers - np.array(document["image_mean"])) / np.array(document["image_std"])
    return numbers.transpose(2, 0, 1)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"resample": 2},
        {"resample": 0},
        {"resample": 1},
        {"rescale_factor": 1 / 127.5},
        {"do_normalize": False},
        {"do_rescale": False, "image_mean": [120.0, 110.0, 100.0], "image_std": [60.0, 57.0, 58.0]},
        {"do_normalize": False, "do_rescale": False},
    ],
    ids=str,
)
def test_pixels_are_those_of_the_processor(change: dict[str, Any]) -> None:
    document = HF_CROP | change
    expected = reference(document)
    np.testing.assert_allclose(to_pixels(SQUARE, read(document)), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({**HF_CROP, "do_resize": False}, "does not resize pictures"),
        ({**HF_CROP, "do_center_crop": False}, "crops nothing, so that sizes vary: state --crop"),
        ({**HF_CROP, "resample": 5}, "resizes with 5, which is not done here: state --interpolation"),
        ({**TIMM, "interpolation": "random"}, "resizes with 'random'"),
        ({**TIMM, "crop_mode": "border"}, "crop_mode 'border'"),
        ({**TIMM, "input_size": [3, 48, 48]}, r"makes pictures of \(3, 48, 48\) .* ask for \(3, 32, 32\)"),
        ({**TIMM, "mean": [0.5]}, r"preprocessing of a\.json is impossible: mean and std need one number"),
        ({**TIMM, "std": [0, 1, 1]}, "std positive"),
        ({**TIMM, "crop_pct": "large"}, "has a value of the wrong type"),
        ({**HF_CROP, "crop_size": {"width": 3}}, "has a value of the wrong type"),
        ({"sizes": [32, 32]}, r"preprocessing\.sizes of a\.json is impossible"),
        ([1], "is no object but"),
    ],
)
def test_what_cannot_be_done_exactly_is_refused_by_name(document: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        read(document)
    assert "Value error" not in str(caught.value)


def test_single_values_win_and_the_rest_is_listed_as_assumed() -> None:
    found, assumed = preprocessing_from(None, PictureWishes(mean=MEAN, std=STD), (32, 32), 3, "a.pt")
    assert (found.mean, found.std, assumed) == (MEAN, STD, ("preprocessing.resize", "preprocessing.interpolation"))
    found = read(HF_CROP, mean=(0.5,) * 3, resize=50, interpolation="nearest")
    assert (found.mean, found.std, found.resize_shorter, found.interpolation) == ((0.5,) * 3, STD, 50, "nearest")
    assert read(HF_CROP, resize=(32, 32)).resize_shorter is None


WIDE = Image.fromarray(np.random.default_rng(1).integers(0, 256, (50, 90, 3), dtype=np.uint8))
DEIT = {**HF_EXACT, "size": {"height": 41, "width": 39}, "do_center_crop": True, "crop_size": 32}
SQUASH = {**TIMM, "crop_mode": "squash", "crop_pct": 0.78}


def test_squeezed_pictures_are_cropped_as_transformers_does() -> None:
    found = read(DEIT)
    assert (found.size, found.resize, found.resize_shorter, found.crop_rounding) == ((32, 32), (41, 39), None, "floor")
    squeezed = np.asarray(WIDE.resize((39, 41), Image.Resampling.BILINEAR), np.float64)[4:36, 3:35] / 255
    expected = ((squeezed - MEAN) / STD).transpose(2, 0, 1)
    np.testing.assert_allclose(to_pixels(WIDE, found), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("part", [0.78, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("mode", ["squash", "center"])
def test_pictures_are_those_of_timm(part: float, mode: str) -> None:
    """torchvision's documented transforms, on which timm builds: CenterCrop begins at `int(round((side - crop) / 2.0))`."""
    found = read({**TIMM, "crop_mode": mode, "crop_pct": part})
    edge = int(32 / part)
    scaled = (edge, edge) if mode == "squash" else (edge * 90 // 50, edge)
    picture = WIDE.resize(scaled, Image.Resampling.BICUBIC)
    left, top = (round((side - 32) / 2.0) for side in scaled)
    crop = np.asarray(picture.crop((left, top, left + 32, top + 32)), np.float64) / 255
    np.testing.assert_allclose(to_pixels(WIDE, found), ((crop - MEAN) / STD).transpose(2, 0, 1), rtol=0, atol=1e-5)


def test_a_crop_out_of_an_exact_resize_is_stated_by_options_too() -> None:
    found = read(SQUASH, resize=(40, 36), crop=(32, 32))
    assert (found.size, found.resize, found.resize_shorter) == ((32, 32), (40, 36), None)
    assert read(SQUASH, resize=40).resize is None
    assert read(DEIT, resize=(32, 32)).resize is None
    with pytest.raises(ConfigurationError, match=r"resize \(40, 30\) is smaller than the crop \(32, 32\)"):
        read(None, resize=(40, 30), crop=(32, 32))


def test_other_sizes_squeeze_in_proportion() -> None:
    found = resized_preprocessing(read(DEIT), (48, 64))
    assert (found.size, found.resize) == ((48, 64), (62, 78))


def test_what_older_bundles_state_means_what_it_did() -> None:
    found = Preprocessing.model_validate({"size": [32, 32], "resize_shorter": 37})
    assert (found.resize, found.crop_rounding) == (None, "floor")
    with pytest.raises(ValueError, match="two things of one picture"):
        Preprocessing(size=(32, 32), resize_shorter=37, resize=(40, 40))


def test_grey_models_take_one_number(tmp_path: Path) -> None:
    found = preprocessing_from(None, PictureWishes(mean=(0.1,), std=(0.3,)), (28, 28), 1, "a.pt")[0]
    assert (found.channels, found.mean, found.tensor_shape) == ("L", (0.1,), (1, 28, 28))


@pytest.mark.parametrize("text", ["", "a", "0.5,0.5", "1,2,3,4", "0.5;0.5;0.5"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="must be one number for each channel"):
        numbers(text, "--mean")


@pytest.mark.parametrize("text", ["", "0", "x", "224x", "-3", "1e3", "224x0", "999999"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="neither a number of pixels nor HEIGHTxWIDTH"):
        image_size(text)


def test_the_file_beside_a_checkpoint_is_found_and_the_callers_wins(tmp_path: Path) -> None:
    document = torch_document(good_checkpoint())
    path = save(tmp_path / "a.pt", document)
    assert "preprocessing" in read_checkpoint(path).assumed
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(HF_CROP))
    found = read_checkpoint(path)
    assert (found.preprocessing.resize_shorter, found.assumed) == (40, ())
    other = PictureWishes(document=HF_EXACT, document_name="mine.json")
    assert read_checkpoint(path, wishes=Wishes(pictures=other)).preprocessing.resize_shorter is None
