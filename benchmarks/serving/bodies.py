"""What is sent: photographs that nobody took, 500×375 in JPEG as ImageNet's are, and the tensors that they become."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import Preprocessing, to_pixels

WIDTH, HEIGHT = 500, 375
DIFFERENT = 32


def photographs() -> list[bytes]:
    """JPEG files of noise whose power falls with the square of the frequency, as that of photographs does."""
    return [_jpeg(np.random.default_rng(seed)) for seed in range(DIFFERENT)]


def tensors(jpegs: list[bytes], spec: Preprocessing) -> NDArray[np.float32]:
    """[n, C, H, W], as the servers' own preprocessing makes them."""
    return np.stack([to_pixels(decode(jpeg, spec.background).rgb, spec) for jpeg in jpegs])


def _jpeg(rng: np.random.Generator) -> bytes:
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.fftfreq(WIDTH))
    frequency[0, 0] = np.inf
    waves = np.fft.fft2(rng.standard_normal((3, HEIGHT, WIDTH))) / frequency
    noise = np.fft.ifft2(waves).real
    noise = noise.mean(0) + 0.3 * noise  # the channels of a photograph mostly agree
    levels = 128 + 50 * noise / noise.std()
    buffer = io.BytesIO()
    Image.fromarray(levels.clip(0, 255).astype(np.uint8).transpose(1, 2, 0)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
