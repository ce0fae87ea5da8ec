"""The classifier's order of pixels, and that a picture's answer does not depend on its company."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussport.models.classifier import Classifier, patches
from gaussport.models.presets import preset

FAMILIES = ("ssog", "gma", "dot")


@given(
    batch=st.integers(1, 3),
    channels=st.integers(1, 4),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    patch=st.integers(1, 5),
)
@settings(max_examples=30, deadline=None)
def test_patches_are_flattened_row_column_channel(batch: int, channels: int, rows: int, columns: int, patch: int) -> None:
    pixels = np.random.default_rng(0).normal(size=(batch, channels, rows * patch, columns * patch)).astype(np.float32)
    found = patches(torch.from_numpy(pixels), patch).numpy()
    for token in range(rows * columns):
        top, left = token // columns * patch, token % columns * patch
        window = pixels[:, :, top : top + patch, left : left + patch]
        assert np.array_equal(found[:, token], np.moveaxis(window, 1, -1).reshape(batch, -1))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pictures_logits_do_not_depend_on_its_batch(family: str) -> None:
    torch.manual_seed(0)
    classifier = Classifier(preset(f"{family}-tiny")).eval()
    pixels = torch.randn(5, 3, 32, 32)
    with torch.inference_mode():
        together, alone = classifier(pixels), torch.cat([classifier(one[None]) for one in pixels])
    assert together.shape == (5, 10)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)  # float32 sums in another order


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_gets_a_gradient(family: str) -> None:
    torch.manual_seed(0)
    classifier = Classifier(preset(f"{family}-tiny"))
    classifier(torch.randn(2, 3, 32, 32)).square().sum().backward()
    without = [name for name, parameter in classifier.named_parameters() if parameter.grad is None]
    assert without == []


def test_memory_layout_of_the_pixels_does_not_matter() -> None:
    torch.manual_seed(0)
    classifier = Classifier(preset("ssog-tiny")).eval()
    pixels = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(classifier(pixels), classifier(pixels.to(memory_format=torch.channels_last)))
