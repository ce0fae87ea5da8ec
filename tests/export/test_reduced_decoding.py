"""A bundle decodes reduced only where its export has measured that the model's answers stay."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from gaussport.errors import ConfigurationError, ProofError, UsageError
from gaussport.export.pipeline import export_module
from gaussport.export.reduced_decoding import LEAST_PICTURES
from gaussport.models.image.prepare import prepare
from gaussport.models.image.preprocess import Preprocessing

SPEC = Preprocessing(size=(8, 8), resize_shorter=10)


class Coarse(nn.Module):
    """Looks at the mean colour alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.as_tensor(self.head(pixels.mean((2, 3))))


class Jumpy(nn.Module):
    """Answers by the 200th parts of the mean colour, which no two ways to resize a picture agree on."""

    def forward(self, pixels: Tensor) -> Tensor:
        waves = torch.arange(1.0, 9.0)
        return torch.sin(4000 * pixels.mean((1, 2, 3)))[:, None] * waves + torch.cos(4000 * pixels.mean((1, 2, 3)))[:, None]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs of 320 × 240, with detail down to the pixel."""
    folder = tmp_path_factory.mktemp("photographs")
    for number in range(LEAST_PICTURES + 4):
        draw = np.random.default_rng(number)
        coarse = Image.fromarray(draw.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize(
            (320, 240), Image.Resampling.BICUBIC
        )
        noisy = np.asarray(coarse).astype(int) + draw.integers(-30, 31, (240, 320, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number:03}.jpg", quality=92)
    return folder


def test_the_bundle_decodes_reduced_and_says_what_that_does(photographs: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    bundle = export_module(Coarse(), tmp_path / "coarse", SPEC, max_batch=2, reduced_decoding=str(photographs))
    assert bundle.manifest.preprocessing == SPEC.model_copy(update={"decoding": "reduced"})
    effect = json.loads(bundle.read("report.json"))["reduced decoding"]
    assert effect["pictures"] == LEAST_PICTURES + 4
    assert LEAST_PICTURES <= effect["changed"] <= effect["pictures"]
    assert effect["same_answer"] == 1
    assert 0 < effect["largest_logit_change"] < 0.02
    assert "Decoding is reduced" in bundle.read("report.md").decode()
    picture = (photographs / "000.jpg").read_bytes()
    assert not np.array_equal(prepare(picture, bundle.manifest.preprocessing).pixels, prepare(picture, SPEC).pixels)


def test_without_the_wish_nothing_is_reduced(tmp_path: Path) -> None:
    bundle = export_module(Coarse(), tmp_path / "coarse", SPEC, max_batch=2)
    assert bundle.manifest.preprocessing == SPEC
    assert "reduced decoding" not in json.loads(bundle.read("report.json"))
    assert '"decoding"' not in (bundle.path / "bundle.json").read_text()


def test_a_model_whose_answers_change_is_not_written(photographs: Path, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match=r"keep their answer \(.*%\), fewer than 99.9%: leave --reduced-decoding out"):
        export_module(
            Jumpy(), tmp_path / "jumpy", SPEC, labels=[*"abcdefgh"], max_batch=2, reduced_decoding=str(photographs)
        )
    assert not (tmp_path / "jumpy").exists()


def test_pictures_that_nothing_is_left_out_of_measure_nothing(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    for number in range(3):
        Image.new("RGB", (10, 10), (number, 0, 0)).save(tmp_path / "small" / f"{number}.png")
    with pytest.raises(ProofError, match=r"changes 0 of the 3 pictures .*, too few to measure"):
        export_module(Coarse(), tmp_path / "coarse", SPEC, max_batch=2, reduced_decoding=str(tmp_path / "small"))


def test_a_preprocessing_that_asks_for_it_unmeasured_is_refused(tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"decoding": "reduced"})
    with pytest.raises(ConfigurationError, match="has to be measured"):
        export_module(Coarse(), tmp_path / "coarse", spec, max_batch=2)


def test_a_folder_that_is_not_there_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--reduced-decoding is 'nowhere', which is no folder"):
        export_module(Coarse(), tmp_path / "coarse", SPEC, reduced_decoding="nowhere")
