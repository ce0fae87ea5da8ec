"""What the model sees of a picture, against torchvision's and Transformers' published rule for the size."""

import numpy as np
import pytest
from PIL import Image

from gaussport.models.image.preprocess import Preprocessing, to_levels


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (499, 331), (331, 499), (64, 64), (1000, 66)])
@pytest.mark.parametrize("shorter", [40, 64])
def test_the_longer_side_is_rounded_down(width: int, height: int, shorter: int) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))
    longer = int(shorter * max(width, height) / min(width, height))
    scaled = picture.resize((longer, shorter) if width > height else (shorter, longer), Image.Resampling.BILINEAR)
    left, top = (scaled.width - 32) // 2, (scaled.height - 32) // 2
    wanted = np.asarray(scaled)[top : top + 32, left : left + 32].transpose(2, 0, 1)
    assert np.array_equal(to_levels(picture, Preprocessing(size=(32, 32), resize_shorter=shorter)), wanted)
