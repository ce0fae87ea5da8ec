"""From an sRGB picture to the tensor a model was trained on. The bundle stores the `Preprocessing`; training, verifying,
serving and the client all call `to_pixels`, so there is one answer to what the model sees."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, model_validator

Side = Annotated[int, Field(ge=1, le=16384)]
Level = Annotated[int, Field(ge=0, le=255)]

REDUCED_OVER_RESIZED = 2
"""A reduced JPEG keeps at least this many times the pixels, along each side, that it is resized to."""

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class Preprocessing(BaseModel):
    """How a picture becomes the model's input.

    The picture is resized with Pillow's antialiased filters: to `size` exactly; or with `resize_shorter` so that its shorter
    side has that many pixels and the longer one is rounded down, as torchvision and Transformers do; or with `resize`
    squeezed to just that. Of the last two the centre `size` is cropped. Then it is scaled to 0 … 1, the mean is taken off
    and the result divided by std, per channel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: tuple[Side, Side]
    """(height, width) of the tensor in pixels."""
    resize_shorter: Side | None = None
    resize: tuple[Side, Side] | None = None
    """(height, width) that pictures are squeezed to before the crop."""
    crop_rounding: Literal["floor", "nearest"] = "floor"
    """Where a crop begins when the margin is odd: half a pixel less, as Transformers does, or at the nearest even pixel, as
    torchvision and timm do (`round` of Python)."""
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    channels: Literal["RGB", "L"] = "RGB"
    """`L` is luma by ITU-R 601, for models with one input channel."""
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    background: tuple[Level, Level, Level] = (255, 255, 255)
    """The sRGB colour that transparent pictures are composed over."""
    decoding: Literal["exact", "reduced"] = Field(default="exact", exclude_if=lambda word: word == "exact")
    """`reduced` leaves out work whose result the resize throws away: a large JPEG is decoded at a half, a quarter or an
    eighth of its size, and only what the crop keeps is resized. Pixels then differ by a few levels, so an export turns it
    on only where it has measured what that does to the model's answers."""

    @model_validator(mode="after")
    def _lengths_agree(self) -> "Preprocessing":
        if not len(self.mean) == len(self.std) == len(self.channels):
            raise ValueError(f"mean and std need one number for each of the channels {self.channels}")
        with np.errstate(all="ignore"):  # they are told in a sentence
            mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
            ends = np.stack([-mean, 1 - mean]) / std
        if not (np.isfinite([mean, std, *ends]).all() and (std > 0).all()):
            raise ValueError("mean must be finite and std positive, also as float32, in which pixels are computed")
        if self.resize_shorter is not None and self.resize is not None:
            raise ValueError("resize_shorter and resize say two things of one picture")
        if self.resize_shorter is not None and self.resize_shorter < max(self.size):
            raise ValueError(f"resize_shorter {self.resize_shorter} is smaller than the crop {self.size}")
        if self.resize is not None and not all(side >= crop for side, crop in zip(self.resize, self.size, strict=True)):
            raise ValueError(f"resize {self.resize} is smaller than the crop {self.size}")
        return self

    @property
    def tensor_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one picture."""
        return (len(self.channels), *self.size)


def to_pixels(picture: Image.Image, spec: Preprocessing, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """The tensor [C, H, W] in float32 of an upright RGB picture (see `decode`), written to `out` if there is one."""
    mean = np.asarray(spec.mean, dtype=np.float32).reshape(-1, 1, 1)
    std = np.asarray(spec.std, dtype=np.float32).reshape(-1, 1, 1)
    levels = _levels(picture, spec).transpose(2, 0, 1)  # [C, H, W], still laid out pixel by pixel
    pixels = np.empty(spec.tensor_shape, dtype=np.float32) if out is None else out
    np.divide(levels, np.float32(255), out=pixels, dtype=np.float32)
    np.subtract(pixels, mean, out=pixels)
    np.divide(pixels, std, out=pixels)
    return pixels


def to_levels(picture: Image.Image, spec: Preprocessing) -> NDArray[np.uint8]:
    """The resized, cropped picture as levels 0 … 255, [C, H, W]; `to_pixels` before normalisation."""
    return np.ascontiguousarray(_levels(picture, spec).transpose(2, 0, 1))


def enough(size: tuple[int, int], spec: Preprocessing) -> tuple[int, int] | None:
    """(width, height) down to which a picture of that size may be decoded, twice what the resize wants; None when all of it
    is wanted. It holds for the picture on its side too, since nobody has looked for its orientation yet."""
    if spec.decoding == "exact":
        return None
    if spec.resize_shorter is None:
        side = REDUCED_OVER_RESIZED * max(_scaled(size, spec))
        return side, side
    width, height = _scaled(size, spec)
    return REDUCED_OVER_RESIZED * width, REDUCED_OVER_RESIZED * height


def _levels(picture: Image.Image, spec: Preprocessing) -> NDArray[np.uint8]:
    """The levels as Pillow lays them out, [H, W, C]."""
    height, width = spec.size
    picture = picture if picture.mode == spec.channels else picture.convert(spec.channels)
    scaled = _scaled(picture.size, spec)
    margins = (scaled[0] - width, scaled[1] - height)
    left, top = (round(m / 2) if spec.crop_rounding == "nearest" else m // 2 for m in margins)
    box = (left, top, left + width, top + height)
    resampling = _FILTERS[spec.interpolation]
    if spec.decoding == "exact" or picture.size == scaled:
        picture = _cropped(_resized(picture, scaled, resampling), box)
    else:
        picture = _resized_crop(picture, scaled, box, resampling)
    return np.asarray(picture, dtype=np.uint8).reshape(height, width, -1)


def _scaled(size: tuple[int, int], spec: Preprocessing) -> tuple[int, int]:
    """(width, height) after the resize, before the crop."""
    if spec.resize_shorter is not None:
        shorter = min(size)
        return spec.resize_shorter * size[0] // shorter, spec.resize_shorter * size[1] // shorter
    height, width = spec.resize or spec.size
    return width, height


def _resized(picture: Image.Image, size: tuple[int, int], resampling: Image.Resampling) -> Image.Image:
    return picture if picture.size == size else picture.resize(size, resampling)


def _cropped(picture: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    return picture if box == (0, 0, *picture.size) else picture.crop(box)


def _resized_crop(
    picture: Image.Image, scaled: tuple[int, int], box: tuple[int, int, int, int], resampling: Image.Resampling
) -> Image.Image:
    """The crop `box` of the picture resized to `scaled`, and nothing else of it: at most one level away, or more where a
    bicubic or lanczos filter overshoots black or white, since Pillow may then go down before it goes across."""
    across, down = picture.width / scaled[0], picture.height / scaled[1]
    source = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
    return picture.resize((box[2] - box[0], box[3] - box[1]), resampling, source)
