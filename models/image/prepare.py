"""From untrusted bytes to the tensor of one picture: `decode`, then `to_pixels`, and no more decoded than that needs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.models.image.decode import ImageLimits, Opened, open_picture
from gaussport.models.image.preprocess import Preprocessing, enough, to_pixels


@dataclass(frozen=True)
class Prepared:
    """One picture as the model sees it, [C, H, W], and what its sender should know."""

    pixels: NDArray[np.float32]
    warnings: tuple[str, ...] = ()


def prepare(
    picture: bytes | Opened, spec: Preprocessing, limits: ImageLimits | None = None, out: NDArray[np.float32] | None = None
) -> Prepared:
    """The picture's pixels, written to `out` if there is one. Raises ImageError as `open_picture` and `Opened.decode`."""
    opened = picture if isinstance(picture, Opened) else open_picture(picture, limits)
    decoded = opened.decode(spec.background, enough(opened.image.size, spec))
    return Prepared(to_pixels(decoded.rgb, spec, out), decoded.warnings)
