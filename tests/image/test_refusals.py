"""Whatever is not a usable picture is one ImageError with a stable code, decided from the header where it can be."""

import io
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image, ImageFile

from gaussport.errors import ImageError
from gaussport.models.image.decode import ImageLimits, decode

INPUTS = Path(__file__).parent / "inputs"


def code_of(data: bytes, limits: ImageLimits | None = None, says: str = "") -> str:
    with pytest.raises(ImageError) as caught:
        decode(data, limits=limits)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value.code


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has no pixels: enough for whoever reads the header first."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("name", ["trunc_100b.jpg", "trunc_4b.jpg", "trunc_half.jpg", "trunc_minus2.jpg", "trunc_half.png"])
def test_truncated_pictures_are_damaged(name: str) -> None:
    assert code_of((INPUTS / name).read_bytes()) == "image_damaged"


@pytest.mark.parametrize("name", ["bad_crc.png", "text_bomb.png"])
def test_corrupt_pictures_are_damaged(name: str) -> None:
    assert code_of((INPUTS / name).read_bytes()) == "image_damaged"


@pytest.mark.parametrize(
    ("name", "format"), [("eps_named.jpg", "PostScript"), ("svg_named.png", "SVG"), ("pdf_named.png", "PDF")]
)
def test_other_formats_are_called_by_their_names(name: str, format: str) -> None:
    assert code_of((INPUTS / name).read_bytes(), says=f"{format} files are not read here") == "unsupported_format"


@pytest.mark.parametrize("format", ["TIFF", "PPM", "ICO", "PCX", "JPEG2000", "DDS", "AVIF", "EPS", "PDF", "QOI"])
def test_formats_that_pillow_writes_but_we_do_not_read(format: str) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16)).save(buffer, format)
    assert code_of(buffer.getvalue(), says="files are not read here: send JPEG") == "unsupported_format"


def test_a_phones_heic_is_called_so() -> None:
    assert code_of(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", says="HEIC files") == "unsupported_format"


@pytest.mark.parametrize(
    "data", [b"hello", b"<html>", b"  \n<a>", b"\0" * 200, b"\0\0\0\x18ftypisom", b"P9\n", b"II", b"TGA"]
)
def test_what_is_no_picture_is_called_none(data: bytes) -> None:
    assert code_of(data, says=f"these {len(data)} bytes are not a picture") == "not_an_image"


def test_nothing_is_not_a_picture() -> None:
    assert code_of(b"") == "empty_image"


@pytest.mark.parametrize("head", [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF\0\0\0\0WEBPVP8 "])
@pytest.mark.parametrize("rest", [b"", b"\0" * 64, b"\xff" * 64, bytes(range(256))])
def test_a_format_s_first_bytes_do_not_make_a_picture(head: bytes, rest: bytes) -> None:
    assert code_of(head + rest) == "image_damaged"


@pytest.mark.parametrize("side", [8000, 10_000, 13_000, 20_000, 2_000_000_000])
def test_a_bomb_is_refused_by_its_header(side: int, recwarn: pytest.WarningsRecorder) -> None:
    assert code_of(png_header(side, side)) == "too_many_pixels"
    assert not recwarn.list


def test_our_limit_may_be_above_pillows() -> None:
    # 13,000² would be a DecompressionBombWarning, an error in these tests; here only the missing pixels are wrong.
    assert code_of(png_header(13_000, 13_000), ImageLimits(max_pixels=200_000_000)) == "image_damaged"


def test_a_strip_is_refused_by_its_header() -> None:
    assert code_of(png_header(1, 20_000)) == "side_ratio"
    assert code_of(png_header(20_000, 1)) == "side_ratio"


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP"])
def test_only_still_pictures_pass_the_strict_policy(format: str) -> None:
    strict = ImageLimits(still_only=True)
    frames = [Image.new("RGB", (9, 7), colour) for colour in ("red", "blue")]
    still, animated = io.BytesIO(), io.BytesIO()
    frames[0].save(still, format)
    frames[0].save(animated, format, save_all=True, append_images=frames[1:])
    assert decode(still.getvalue(), limits=strict).warnings == ()
    assert code_of(animated.getvalue(), strict) == "animated"
    assert decode(animated.getvalue()).warnings == ("animated picture: only its first frame was used",)


def test_previews_in_a_photograph_are_no_animation() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (90, 70)).save(buffer, "MPO", save_all=True, append_images=[Image.new("RGB", (9, 7))])
    assert decode(buffer.getvalue(), limits=ImageLimits(still_only=True)).rgb.size == (90, 70)


def test_limits_are_inclusive() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (100, 2)).save(buffer, "PNG")
    assert decode(buffer.getvalue(), limits=ImageLimits(max_pixels=200, max_side_ratio=50)).rgb.size == (100, 2)
    assert code_of(buffer.getvalue(), ImageLimits(max_pixels=199)) == "too_many_pixels"
    assert code_of(buffer.getvalue(), ImageLimits(max_side_ratio=49)) == "side_ratio"


def test_pillows_globals_stay_as_they_were() -> None:
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    code_of((INPUTS / "trunc_half.jpg").read_bytes())
    decode((INPUTS / "base.png").read_bytes())
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
