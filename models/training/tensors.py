"""A data set in memory: every picture resized once, by the code that serves it, and normalised batch by batch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from gaussport.errors import DataError
from gaussport.models.config import ClassifierConfig
from gaussport.models.data import DataSet, LabelledPictures
from gaussport.models.image.preprocess import Preprocessing, to_levels

LIMIT_BYTES = 4_000_000_000

Track = Callable[[Iterable[Image.Image], int], Iterable[Image.Image]]
"""Passes pictures through while it shows how many of the total have come."""


@dataclass(frozen=True)
class PixelTensors:
    """Levels [n, C, height, width] in uint8 and classes [n]."""

    levels: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor, spec: Preprocessing) -> tuple[Tensor, Tensor]:
        """The pictures at `indices` as `to_pixels` makes them, [B, C, height, width] in float32, and their classes."""
        mean = torch.tensor(spec.mean, dtype=torch.float32).view(-1, 1, 1)
        std = torch.tensor(spec.std, dtype=torch.float32).view(-1, 1, 1)
        return (self.levels[indices].float() / 255 - mean) / std, self.targets[indices]


def pixel_tensors(
    data: DataSet, config: ClassifierConfig, track: Track = lambda pictures, total: pictures
) -> tuple[PixelTensors, PixelTensors, Preprocessing]:
    """Training and held-out pictures at the configured size, and the preprocessing that makes them, with the training
    pictures' own mean and standard deviation.

    Pictures of another shape are resized by their shorter side and cropped at the centre.

    Raises:
        DataError: a picture cannot be decoded, or all together need more than LIMIT_BYTES.
    """
    height, width = config.image_size
    needed = (len(data.train) + len(data.held_out)) * config.channels * height * width
    if needed > LIMIT_BYTES:
        raise DataError(f"{data.name} needs {needed:,} bytes in memory and the limit is {LIMIT_BYTES:,}: use fewer pictures")
    plain = _preprocessing(data, config, (0.5,) * config.channels, (0.5,) * config.channels)
    train, held_out = (_levels(pictures, plain, track) for pictures in (data.train, data.held_out))
    mean, std = _statistics(train.levels.numpy())
    return train, held_out, _preprocessing(data, config, mean, std)


def _preprocessing(
    data: DataSet, config: ClassifierConfig, mean: tuple[float, ...], std: tuple[float, ...]
) -> Preprocessing:
    return Preprocessing(
        size=config.image_size,
        resize_shorter=None if data.name == "mnist" else max(config.image_size),
        channels="L" if config.channels == 1 else "RGB",
        mean=mean,
        std=std,
        background=data.background,
    )


def _levels(pictures: LabelledPictures, spec: Preprocessing, track: Track) -> PixelTensors:
    levels = np.empty((len(pictures), *spec.tensor_shape), dtype=np.uint8)
    for index, picture in enumerate(track(pictures, len(pictures))):
        levels[index] = to_levels(picture, spec)
    return PixelTensors(torch.from_numpy(levels), torch.tensor(pictures.targets))


def _statistics(levels: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of levels [n, C, height, width], on the scale 0 … 1, to 4 digits."""
    counts = [np.bincount(levels[:, channel].ravel(), minlength=256) for channel in range(levels.shape[1])]
    scale = np.arange(256) / 255
    means = [float((count * scale).sum() / count.sum()) for count in counts]
    stds = [
        float(np.sqrt((count * (scale - mean) ** 2).sum() / count.sum())) for count, mean in zip(counts, means, strict=True)
    ]
    return tuple(round(mean, 4) for mean in means), tuple(max(round(std, 4), 1e-3) for std in stds)
