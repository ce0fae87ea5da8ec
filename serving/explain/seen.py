"""A picture as the model saw it: resized, cropped and in the model's own channels."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gaussport.models.image.preprocess import Preprocessing


@dataclass(frozen=True)
class Picture:
    """What the model saw, [height, width, 3] from 0 to 1."""

    seen: NDArray[np.float64]

    @classmethod
    def of(cls, pixels: NDArray[np.float32], spec: Preprocessing) -> "Picture":
        """From one normalised picture [C, height, width], its preprocessing undone."""
        mean, std = (np.asarray(stated, dtype=np.float64)[:, None, None] for stated in (spec.mean, spec.std))
        seen = np.clip(pixels * std + mean, 0, 1).transpose(1, 2, 0)
        return cls(np.broadcast_to(seen, (*seen.shape[:2], 3)))

    def faded(self, share: float = 0.6) -> NDArray[np.float64]:
        """Grey and lighter, for things to be drawn over."""
        grey = self.seen.mean(axis=2, keepdims=True)
        return np.broadcast_to(1 - share + share * grey, self.seen.shape)

    def data_uri(self, longest: int | None = None) -> str:
        """The picture as a PNG in a `data:` URI, scaled down so that no side has more than `longest` pixels."""
        buffer = io.BytesIO()
        image = Image.fromarray(np.round(self.seen * 255).astype(np.uint8))
        if longest is not None:
            image.thumbnail((longest, longest))
        image.save(buffer, "PNG")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
