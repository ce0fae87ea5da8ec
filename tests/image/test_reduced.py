"""Reduced decoding: what is left out, and that nothing but fine detail changes by it."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gaussport.errors import ImageError
from gaussport.models.image.decode import open_picture
from gaussport.models.image.prepare import prepare
from gaussport.models.image.preprocess import Preprocessing, enough, to_levels

INPUTS = sorted(path for path in (Path(__file__).parent / "inputs").iterdir() if path.is_file())
EXACT = Preprocessing(size=(32, 32), resize_shorter=40)
REDUCED = EXACT.model_copy(update={"decoding": "reduced"})


def smooth(width: int, height: int) -> Image.Image:
    """A picture without detail finer than what is left of it: four colours that flow into each other, and a slope."""
    corners = np.random.default_rng(width * 7919 + height).integers(0, 256, (3, 3, 3), dtype=np.uint8)
    return Image.fromarray(corners).resize((width, height), Image.Resampling.BICUBIC)


def jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95, **options)
    return buffer.getvalue()


def decoded_size(data: bytes, spec: Preprocessing) -> tuple[int, int]:
    opened = open_picture(data)
    return opened.decode(enough=enough(opened.image.size, spec)).rgb.size


@pytest.mark.parametrize(
    ("size", "left"),
    [
        ((640, 480), (160, 120)),
        ((1280, 960), (160, 120)),
        ((480, 640), (120, 160)),
        ((636, 476), (159, 119)),
        ((642, 482), (321, 241)),
        ((641, 480), (641, 480)),  # a half of 641 would be 320.5: the picture would be shifted
        ((158, 120), (158, 120)),
    ],
    ids=str,
)
def test_at_least_twice_what_the_resize_wants_is_decoded(size: tuple[int, int], left: tuple[int, int]) -> None:
    data = jpeg(smooth(*size))
    assert decoded_size(data, REDUCED) == left
    assert min(left) >= 2 * 40
    assert decoded_size(data, EXACT) == size


def test_a_fixed_size_leaves_enough_for_a_picture_on_its_side() -> None:
    spec = Preprocessing(size=(20, 60), decoding="reduced")
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = prepare(jpeg(smooth(640, 960)), spec).pixels
    turned = prepare(jpeg(smooth(640, 960).transpose(Image.Transpose.ROTATE_90), exif=exif), spec).pixels
    assert np.abs(upright - turned).mean() * 127.5 < 1.5  # levels: JPEG blocks lie elsewhere
    assert min(decoded_size(jpeg(smooth(960, 640)), spec)) >= 120


@settings(max_examples=40, deadline=None)
@given(
    st.integers(33, 700),
    st.integers(33, 700),
    st.sampled_from(["bilinear", "bicubic", "lanczos"]),
    st.sampled_from(["floor", "nearest"]),
    st.sampled_from([{"resize_shorter": 40}, {"resize": (36, 44)}, {}]),
)
def test_resizing_the_crop_alone_is_at_most_one_level_off(
    width: int, height: int, interpolation: str, rounding: str, how: dict[str, object]
) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(90, 166, (height, width, 3), dtype=np.uint8))
    exact = Preprocessing.model_validate(
        {"size": (32, 32), "interpolation": interpolation, "crop_rounding": rounding, **how}
    )
    reduced = exact.model_copy(update={"decoding": "reduced"})
    off = np.abs(to_levels(picture, exact).astype(int) - to_levels(picture, reduced))
    assert off.max() <= 1
    assert off.mean() < 0.2  # of noise; of photographs 0.001


@settings(max_examples=25, deadline=None)
@given(st.integers(8, 190), st.integers(8, 190))
def test_a_picture_without_fine_detail_keeps_its_pixels(eighth: int, other: int) -> None:
    data = jpeg(smooth(8 * eighth, 8 * other))
    exact, reduced = prepare(data, EXACT).pixels, prepare(data, REDUCED).pixels
    assert np.abs(exact - reduced).max() * 127.5 < 4  # levels


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_every_strange_picture_is_used_or_refused_as_before(path: Path) -> None:
    """Also at a size so small that every JPEG among them is really decoded smaller."""

    def outcome(decoding: str) -> tuple[str, tuple[str, ...]]:
        spec = Preprocessing.model_validate({"size": (4, 4), "resize_shorter": 4, "decoding": decoding})
        try:
            return "used", prepare(path.read_bytes(), spec).warnings
        except ImageError as error:
            return error.code, ()

    assert outcome("reduced") == outcome("exact")


@pytest.mark.parametrize("path", [path for path in INPUTS if path.suffix == ".jpg"], ids=lambda path: path.name)
def test_profiles_orientation_and_colour_spaces_still_count(path: Path) -> None:
    spec = Preprocessing(size=(4, 4))
    try:
        exact = prepare(path.read_bytes(), spec).pixels
    except ImageError:
        pytest.skip("not a usable picture")
    reduced = prepare(path.read_bytes(), spec.model_copy(update={"decoding": "reduced"})).pixels
    assert np.abs(exact - reduced).mean() * 127.5 < 6


def test_exact_decoding_leaves_no_trace_in_a_manifest() -> None:
    assert "decoding" not in EXACT.model_dump()
    assert Preprocessing.model_validate(REDUCED.model_dump()) == REDUCED
