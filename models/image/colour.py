"""Colour to sRGB, once and for all modes: palettes, alpha, CMYK, 16 bits, embedded profiles.

Transparent pictures are composed over a stated background, so what hides under alpha 0 never shows. An embedded ICC
profile is applied when it fits the picture; one that is broken or of another colour space is ignored, with a warning.
"""

from io import BytesIO

import numpy as np
from PIL import Image, ImageCms

_PROFILE_SPACE = {"RGB": "RGB", "L": "GRAY", "CMYK": "CMYK"}
_BAD_PROFILE = "the embedded colour profile cannot be used and was ignored"


def to_srgb(image: Image.Image, background: tuple[int, int, int]) -> tuple[Image.Image, tuple[str, ...]]:
    """A loaded picture of any mode as RGB over `background`, and warnings."""
    profile = image.info.get("icc_profile")
    image, alpha = _colour_and_alpha(image)
    warnings: tuple[str, ...] = ()
    rgb = None
    if profile:
        try:
            rgb = _through_profile(image, profile)
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
            warnings = (_BAD_PROFILE,)
    if rgb is None:
        rgb = image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
    if alpha is not None:
        canvas = Image.new("RGB", rgb.size, background)
        canvas.paste(rgb, mask=alpha)
        rgb = canvas
    return rgb, warnings


def _colour_and_alpha(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """The picture as RGB, L or CMYK, 8 bits a channel, and its alpha channel if it has one."""
    if image.mode in ("I", "I;16", "I;16L", "I;16B"):
        return _eight_bits(image)
    if image.has_transparency_data:
        mode = "LA" if image.mode in ("L", "LA", "1") else "RGBA"
        with_alpha = image if image.mode == mode else image.convert(mode)
        *colours, alpha = with_alpha.split()
        return (colours[0] if mode == "LA" else Image.merge("RGB", colours)), alpha
    if image.mode in ("RGB", "L", "CMYK"):
        return image, None
    return image.convert("L" if image.mode == "1" else "RGB"), None


_SCALED = ((np.arange(65536, dtype=np.uint32) * 255 + 32767) // 65535).astype(np.uint8)


def _eight_bits(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """16-bit grey scaled to 8 bits. Pillow's own conversion clips everything above 255 to white."""
    values = np.asarray(image)
    if values.dtype.itemsize > 2:  # mode I has 32 bits, of which a PNG fills 16
        values = values.clip(0, 65535).astype(np.uint16)
    grey = Image.fromarray(_SCALED[values])
    hidden = image.info.get("transparency")
    if not isinstance(hidden, int):
        return grey, None
    return grey, Image.fromarray(np.where(values == hidden, np.uint8(0), np.uint8(255)))


def _through_profile(image: Image.Image, profile: bytes) -> Image.Image | None:
    """The picture in sRGB by its own profile; None when that profile is sRGB already."""
    source = ImageCms.ImageCmsProfile(BytesIO(profile))
    space = source.profile.xcolor_space.strip()
    if space != _PROFILE_SPACE[image.mode]:
        raise ValueError(f"a {space} profile in a {image.mode} picture")
    if image.mode == "RGB" and (source.profile.profile_description or "").startswith("sRGB"):
        return None
    return ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
