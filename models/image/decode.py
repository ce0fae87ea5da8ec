"""From untrusted bytes to an upright sRGB picture: every route, the trainer and the client see the same pixels.

The formats are an allow-list, the limits are read from the header before anything is decoded, and whatever Pillow
raises becomes one `ImageError`. No global of Pillow is read or changed: its own bomb limit warns only above 89 million
pixels and raises only above twice that, so the plugins are called without it and `ImageLimits` decides alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

from PIL import BmpImagePlugin, GifImagePlugin, Image, ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from gaussport.errors import ImageError
from gaussport.models.image.colour import to_srgb
from gaussport.models.image.foreign import foreign_format

Background = tuple[int, int, int]

_ORIENTATION_TAG = 0x0112
_DOUBLED_EXIF = b"Exif\0\0Exif\0\0"
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_FORMATS = tuple(
    plugin.format
    for plugin in (
        JpegImagePlugin.JpegImageFile,  # and MPO, which is JPEG with further pictures behind the first
        PngImagePlugin.PngImageFile,
        WebPImagePlugin.WebPImageFile,
        GifImagePlugin.GifImageFile,
        BmpImagePlugin.BmpImageFile,
    )
)
ACCEPTED = "JPEG, PNG, WebP, GIF or BMP"


@dataclass(frozen=True)
class ImageLimits:
    """What a picture's header may claim."""

    max_pixels: int = 50_000_000
    max_side_ratio: float = 50
    """Longer side over shorter side; a 1×20000 strip explodes when its shorter side is resized."""
    still_only: bool = False
    """Whether animated pictures are refused; else their first frame is used, with a warning."""


@dataclass(frozen=True)
class Picture:
    """A decoded picture, upright, in sRGB, and what had to be done to it that its sender may not expect."""

    rgb: Image.Image
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A picture whose header was read and found within the limits; nothing is decoded yet."""

    image: ImageFile.ImageFile

    @property
    def pixels(self) -> int:
        return self.image.width * self.image.height

    def decode(self, background: Background = (255, 255, 255), enough: tuple[int, int] | None = None) -> Picture:
        """The picture. A JPEG may be decoded at a half, a quarter or an eighth of its size if that comes out even and no
        less than `enough` (width, height). Raises ImageError with code `image_damaged` or `too_many_pixels`."""
        image = self.image
        with _one_error():
            animated = _animated(image)
            if enough is not None:
                image.draft(None, _reduced(image.size, enough))  # None keeps the mode; formats other than JPEG do nothing
            image.load()
            rgb, warnings = to_srgb(image, background)
            rgb = _upright(rgb, image)
        if animated:
            warnings = (*warnings, "animated picture: only its first frame was used")
        return Picture(rgb, warnings)


def open_picture(data: bytes, limits: ImageLimits | None = None) -> Opened:
    """Read one picture's header. Raises ImageError with code `empty_image`, `not_an_image`, `unsupported_format`,
    `too_many_pixels`, `side_ratio`, `animated` or `image_damaged`."""
    limits = limits or ImageLimits()
    if not data:
        raise ImageError("the picture is empty (0 bytes)", "empty_image")
    with _one_error():
        image = _opened(data)
    if image is None:
        raise _refused(data)
    _check_header(image.size, limits)
    if limits.still_only:
        with _one_error():
            animated = _animated(image)
        if animated:
            raise ImageError("the picture is animated and only still ones are taken: send one frame of it", "animated")
    return Opened(image)


def decode(data: bytes, background: Background = (255, 255, 255), limits: ImageLimits | None = None) -> Picture:
    """Decode one picture: `open_picture`, then `Opened.decode`."""
    return open_picture(data, limits).decode(background)


@contextmanager
def _one_error() -> Iterator[None]:
    """Whatever Pillow raises in here is one ImageError."""
    try:
        yield
    except Image.DecompressionBombError as error:
        # A frame of a GIF may be larger than the picture that its header announces; Pillow's limit is its only one.
        raise ImageError("a frame of the picture has too many pixels: send a smaller one", "too_many_pixels") from error
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, TypeError, struct.error, MemoryError and more.
        reason = f" ({error})" if type(error) is OSError else ""
        raise ImageError(f"the picture is damaged or incomplete{reason}: send it again, whole", "image_damaged") from error


def _opened(data: bytes) -> ImageFile.ImageFile | None:
    """The picture with its header read, or None when no accepted format starts like this."""
    for name in _FORMATS:
        factory, accept = Image.OPEN[str(name)]
        if accept is not None and accept(data[:16]) is True:
            return factory(BytesIO(data), "")
    return None


def _animated(image: ImageFile.ImageFile) -> bool:
    """Whether there are further frames: reads the head of the second."""
    # The Multi-Picture Format holds previews and depth maps beside the photograph: nobody means an animation by it.
    return image.format != "MPO" and bool(getattr(image, "is_animated", False))


def _reduced(size: tuple[int, int], enough: tuple[int, int]) -> tuple[int, int]:
    """The least size that is a whole part of `size` and no less than `enough`: an uneven one would shift the picture."""
    sides = tuple(zip(size, enough, strict=True))
    part = next((n for n in (8, 4, 2) if all(side % n == 0 and side // n >= least for side, least in sides)), 1)
    return size[0] // part, size[1] // part


def _refused(data: bytes) -> ImageError:
    name = foreign_format(data)
    if name is None:
        return ImageError(f"these {len(data)} bytes are not a picture: send {ACCEPTED}", "not_an_image")
    return ImageError(f"{name} files are not read here: send {ACCEPTED}", "unsupported_format")


def _check_header(size: tuple[int, int], limits: ImageLimits) -> None:
    width, height = size
    if width * height > limits.max_pixels:
        raise ImageError(
            f"the picture has {width}×{height} pixels and the limit is {limits.max_pixels:,}: send a smaller one",
            "too_many_pixels",
        )
    if max(size) > limits.max_side_ratio * min(size):
        raise ImageError(
            f"the picture is {width}×{height}, its sides differ more than {limits.max_side_ratio:g} times: crop it",
            "side_ratio",
        )


def _upright(rgb: Image.Image, source: Image.Image) -> Image.Image:
    """Apply the EXIF orientation. An unreadable EXIF block says nothing about how to hold the picture; one whose header
    stands there twice is unreadable to viewers, though Pillow reads it, and the picture is taken as they show it."""
    if bytes(source.info.get("exif", b"")).startswith(_DOUBLED_EXIF):
        return rgb
    try:
        orientation = source.getexif().get(_ORIENTATION_TAG, 1)
        turn = _UPRIGHT.get(orientation)
    except Exception:  # noqa: BLE001 - struct.error, SyntaxError, warnings made errors and more, by kind of damage
        return rgb
    return rgb if turn is None else rgb.transpose(turn)
