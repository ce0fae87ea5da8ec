"""The bodies of the fault run: pictures of every kind that is good but odd, each with its answer, and broken ones."""

import contextlib
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gaussport.errors import ImageError
from gaussport.export.bundle.store import open_bundle
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import to_pixels
from gaussport.serving.predictions import probabilities
from gaussport.serving.runtime import Runtime

SIDE = 640  # of the pictures: large enough for decoding to cost more than asking


@dataclass(frozen=True)
class Sample:
    """A body to send, and the probabilities [K] it must be answered with; None for one that must be refused."""

    body: bytes
    expected: NDArray[np.float64] | None


class Samples:
    """Pictures of every kind that is good but odd, each with its own answer, and broken ones."""

    def __init__(self, bundle: Path, rng: random.Random) -> None:
        runtime = Runtime(open_bundle(bundle), threads=1)
        spec = runtime.manifest.preprocessing
        bodies = [body for index in range(12) for body in _kinds(picture(index))]
        pixels = [to_pixels(decode(body, spec.background).rgb, spec) for body in bodies]
        expected = [probabilities(runtime.run(rows[None]))[0] for rows in pixels]
        self.good = [Sample(body, answer) for body, answer in zip(bodies, expected, strict=True)]
        self.broken = [Sample(body, None) for body in _broken(bodies[0], bodies[1], rng)]
        for sample in self.broken:
            with contextlib.suppress(ImageError):
                decode(sample.body)
                raise SystemExit("a picture that should be broken is not")


def picture(seed: int) -> Image.Image:
    """A picture of its own for each seed: coarse noise, so that it compresses like a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((SIDE, SIDE * 3 // 4), Image.Resampling.BICUBIC)


def _kinds(image: Image.Image) -> Iterator[bytes]:
    upside_down = Image.Exif()
    upside_down[0x0112] = 3
    see_through = image.copy()
    see_through.putalpha(image.convert("L"))
    yield _saved(image, "JPEG", quality=85)
    yield _saved(image, "PNG", compress_level=1)
    yield _saved(image, "JPEG", quality=85, exif=upside_down)
    yield _saved(see_through, "WEBP", quality=80)
    yield _saved(image.quantize(64), "GIF")
    yield _saved(image.convert("CMYK"), "JPEG", quality=85)


def _broken(jpeg: bytes, png: bytes, rng: random.Random) -> Iterator[bytes]:
    yield from (
        b"",
        b"hello",
        b"II*\0" + jpeg,
        jpeg[: len(jpeg) // 2],
        png[: len(png) // 2],
        png[:40],
        b"\xff\xd8\xff" + png,
    )
    yield png[:16] + b"\0\0\xff\xff" * 2 + png[24:]  # says that it has four thousand million pixels
    yield rng.randbytes(5000)


def _saved(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()
