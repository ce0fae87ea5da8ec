"""A good but odd picture is its plain twin: orientation, alpha, depth, palettes, CMYK and profiles change no pixel
beyond what the encoding itself lost."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from gaussport.models.image.decode import decode

INPUTS = Path(__file__).parent / "inputs"
BACKGROUND = (10, 200, 30)
JPEG_TOLERANCE = 6
"""Levels by which a turned and re-encoded JPEG may differ from the original: its blocks lie elsewhere."""


def rgb(data: bytes | str, background: tuple[int, int, int] = BACKGROUND) -> NDArray[np.int64]:
    data = (INPUTS / data).read_bytes() if isinstance(data, str) else data
    return np.asarray(decode(data, background).rgb).astype(np.int64)


def saved(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("orientation", range(2, 9))
def test_exif_orientation_is_applied_to_jpeg(orientation: int) -> None:
    turned, base = rgb(f"exif{orientation}.jpg"), rgb("base.jpg")
    assert turned.shape == base.shape
    assert np.abs(turned - base).max() <= JPEG_TOLERANCE


@pytest.mark.parametrize("name", ["exif6.png", "exif6.webp"])
def test_exif_orientation_is_applied_to_lossless_formats(name: str) -> None:
    assert np.array_equal(rgb(name), rgb("base.png"))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("name", ["exif_bad_farptr.jpg", "exif_bad_garbage.jpg", "exif_bad_dup.jpg"])
def test_bad_exif_is_ignored(name: str) -> None:
    plain = saved(Image.open(INPUTS / name), "PNG", exif=b"")
    assert np.array_equal(rgb(name), rgb(plain))


def test_bad_exif_is_ignored_even_where_warnings_are_errors() -> None:
    assert rgb("exif_bad_garbage.jpg").shape == (256, 320, 3)


def test_a_doubled_exif_header_is_ignored_as_viewers_do() -> None:
    with Image.open(INPUTS / "exif_bad_dup.jpg") as image:
        assert image.getexif()[0x0112] == 6
    assert np.array_equal(rgb("exif_bad_dup.jpg"), rgb("exif_bad_garbage.jpg"))  # the same picture, encoded the same way


@pytest.mark.parametrize("kind", ["rgba", "pal"])
def test_colours_hidden_under_alpha_never_show(kind: str) -> None:
    assert np.array_equal(rgb(f"{kind}_hid_red.png"), rgb(f"{kind}_hid_blue.png"))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_shows_the_stated_background(mode: str) -> None:
    clear = Image.new(mode, (4, 4), (255, 0) if mode == "LA" else (255, 0, 0, 0))
    assert (rgb(saved(clear)) == BACKGROUND).all()


def test_half_transparency_mixes() -> None:
    half = Image.new("RGBA", (4, 4), (255, 0, 0, 128))
    assert np.abs(rgb(saved(half), (0, 0, 0)) - [128, 0, 0]).max() <= 1


@pytest.mark.parametrize("mode", ["RGB", "L", "1"])
def test_a_transparent_colour_shows_the_background(mode: str) -> None:
    image = Image.new("RGB", (4, 4), (255, 255, 255)).convert(mode)
    transparency = (255, 255, 255) if mode == "RGB" else 1 if mode == "1" else 255
    assert (rgb(saved(image, transparency=transparency)) == BACKGROUND).all()


def test_an_opaque_palette_is_its_colours() -> None:
    image = Image.open(INPUTS / "base.png").convert("RGB").quantize(64)
    assert np.array_equal(rgb(saved(image)), np.asarray(image.convert("RGB")))


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    ramp = np.arange(256, dtype=np.uint16).reshape(16, 16)
    deep = saved(Image.fromarray(ramp * 257))
    assert np.array_equal(rgb(deep)[..., 0], ramp)
    assert np.array_equal(rgb(deep)[..., 2], ramp)


def test_sixteen_bit_transparency_shows_the_background() -> None:
    deep = np.full((4, 4), 4660, dtype=np.uint16)
    deep[0] = 65535
    found = rgb(saved(Image.fromarray(deep), transparency=4660))
    assert (found[0] == 255).all()
    assert (found[1:] == BACKGROUND).all()


def test_one_bit_and_grey_become_rgb() -> None:
    checks = np.indices((8, 8)).sum(0) % 2 * 255
    for mode in ("L", "1"):
        data = saved(Image.fromarray(checks.astype(np.uint8)).convert(mode))
        assert np.array_equal(rgb(data), np.repeat(checks[..., None], 3, axis=2))


def test_adobes_inverted_cmyk_is_near_its_rgb_twin() -> None:
    assert np.abs(rgb("cmyk.jpg") - rgb("base.png")).max() <= 2


@pytest.mark.parametrize("name", ["icc_garbage.jpg", "icc_lab.png"])
def test_a_profile_that_does_not_fit_is_a_warning(name: str) -> None:
    picture = decode((INPUTS / name).read_bytes())
    assert picture.warnings == ("the embedded colour profile cannot be used and was ignored",)


def test_an_embedded_lab_profile_changes_nothing() -> None:
    assert np.array_equal(rgb("icc_lab.png"), rgb("base.png"))


def test_an_srgb_profile_changes_nothing() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image = Image.open(INPUTS / "base.png").convert("RGB")
    assert np.array_equal(rgb(saved(image, icc_profile=profile)), rgb("base.png"))


def test_a_wide_gamut_profile_is_converted() -> None:
    # Swapping the red and green primaries of sRGB makes a valid profile whose effect cannot be overlooked.
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    red, green = profile.find(b"rXYZ"), profile.find(b"gXYZ")
    profile[red : red + 4], profile[green : green + 4] = profile[green : green + 4], profile[red : red + 4]
    name = profile.find("sRGB".encode("utf-16-be"))
    profile[name : name + 8] = "Odd!".encode("utf-16-be")
    found = rgb(saved(Image.new("RGB", (4, 4), (255, 0, 0)), icc_profile=bytes(profile)))
    assert found[0, 0, 1] > 250 > 5 > found[0, 0, 0]


@pytest.mark.parametrize("name", ["anim.webp", "anim.apng.png"])
def test_an_animation_is_its_first_frame_with_a_warning(name: str) -> None:
    picture = decode((INPUTS / name).read_bytes())
    assert picture.warnings == ("animated picture: only its first frame was used",)
    assert np.array_equal(np.asarray(picture.rgb), rgb("base.png"))


def test_a_long_gif_is_its_first_frame() -> None:
    frames = [Image.new("RGB", (32, 32), (index * 5, 0, 0)) for index in range(50)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    picture = decode(data)
    assert picture.warnings == ("animated picture: only its first frame was used",)
    assert (np.asarray(picture.rgb) == 0).all()


def test_a_still_has_no_warnings() -> None:
    for format in ("PNG", "GIF", "WEBP", "BMP", "JPEG"):
        assert decode(saved(Image.new("RGB", (8, 8)), format)).warnings == ()


def test_one_pixel_is_a_picture() -> None:
    assert rgb("one_pixel.png").shape == (1, 1, 3)
