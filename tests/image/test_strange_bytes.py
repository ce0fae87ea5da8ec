"""Whatever the bytes, decoding ends, with a picture or with one ImageError, and Pillow keeps its remarks to itself.

`GAUSSPORT_PILLOW_IMAGES` names the folder `Tests/images` of Pillow's source distribution; with it every file there is tried:

    pip download --no-binary pillow --no-deps pillow && tar xzf pillow-*.tar.gz
    GAUSSPORT_PILLOW_IMAGES=$(echo pillow-*/Tests/images) pytest tests/image/test_strange_bytes.py
"""

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageOps

from gaussport.errors import ImageError
from gaussport.models.image.decode import Picture, decode

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP")
WHITE = (255, 255, 255)
_FOLDER = os.environ.get("GAUSSPORT_PILLOW_IMAGES")


@pytest.fixture(autouse=True)
def as_a_server_does() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def tried(data: bytes) -> Picture | ImageError:
    try:
        return decode(data, WHITE)
    except ImageError as error:
        return error


def saved(image: Image.Image, format: str) -> bytes:
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(buffer, format, **({} if format in ("GIF", "BMP") else {"exif": exif}))
    return buffer.getvalue()


def moving(format: str) -> bytes:
    buffer = io.BytesIO()
    first, second = (Image.effect_noise((9, 7), 60).convert("RGB") for _ in range(2))
    first.save(buffer, format, save_all=True, append_images=[second], duration=40)
    return buffer.getvalue()


WHOLE = {format: saved(Image.effect_noise((19, 13), 60).convert("RGB"), format) for format in FORMATS}
MOVING = {format: moving(format) for format in ("PNG", "GIF", "WEBP")}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A picture of one format with some bytes changed, moved out or put in, or cut off."""
    data = bytearray(draw(st.sampled_from((*WHOLE.values(), *MOVING.values()))))
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, len(data) - 1))
        change = draw(st.sampled_from(("flip", "insert", "remove", "cut")))
        if change == "flip":
            data[place] = draw(st.integers(0, 255))
        elif change == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif change == "remove":
            del data[place : place + draw(st.integers(1, 8))]
        elif place > 16:
            del data[place:]
        if not data:
            break
    return bytes(data)


@given(data=damaged())
@example(data=b"GIF89a" + b"\0\0\1\0" + b"\0" * 7)  # no width
def test_damage_is_a_picture_or_one_error(data: bytes) -> None:
    tried(data)


@pytest.mark.parametrize("format", MOVING)
def test_an_animation_cut_off_anywhere_is_a_picture_or_one_error(format: str) -> None:
    whole = MOVING[format]
    for length in range(17, len(whole)):
        tried(whole[:length])


@given(data=st.binary(max_size=200))
def test_noise_is_one_error(data: bytes) -> None:
    assert isinstance(tried(data), ImageError)


def pictures_of_pillow() -> list[Path]:
    return [] if _FOLDER is None else sorted(path for path in Path(_FOLDER).rglob("*") if path.is_file())


@pytest.mark.skipif(_FOLDER is None, reason="GAUSSPORT_PILLOW_IMAGES is not set: see this file's head")
def test_every_picture_of_pillows_own_tests_is_an_answer_or_an_error_and_right() -> None:
    answers, differing = 0, []
    for path in pictures_of_pillow():
        picture = tried(path.read_bytes())
        if isinstance(picture, ImageError):
            assert not ours(path) or not readable(path), f"Pillow reads {path.name} and we do not: {picture}"
            continue
        answers += 1
        reference = as_pillow_has_it(path)
        if reference is not None and np.abs(np.asarray(picture.rgb).astype(int) - reference).max() > 1:
            differing.append(path.name)
    assert answers > 500
    assert not differing


def ours(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return image.format in (*FORMATS, "MPO") and image.width * image.height <= 50_000_000
    except Exception:  # noqa: BLE001 - Pillow raises anything
        return False


def readable(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            image.load()
        return True
    except Exception:  # noqa: BLE001 - as above
        return False


def as_pillow_has_it(path: Path) -> NDArray[np.int64] | None:
    """Pillow's own picture over white; None where it is known to differ: profiles, and 16 bits that it clips."""
    with Image.open(path) as image:
        image.load()
        if "icc_profile" in image.info or image.mode.startswith("I"):
            return None
        with contextlib.suppress(Exception):  # a broken EXIF block, which we ignore
            image = ImageOps.exif_transpose(image)  # type: ignore[assignment]
        colours = image.convert("RGBA")
    canvas = Image.new("RGBA", colours.size, (*WHITE, 255))
    canvas.alpha_composite(colours)
    return np.asarray(canvas.convert("RGB")).astype(np.int64)
