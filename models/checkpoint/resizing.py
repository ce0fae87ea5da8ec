"""Weights for pictures of another size: the position embedding on another grid, all else as it is.

The field of each attention is in grid cells and applies to any grid; how much accuracy the other size costs is for a test on
pictures to say.
"""

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import interpolate

from gaussport.errors import ConfigurationError
from gaussport.models.config import ClassifierConfig
from gaussport.models.image.preprocess import Preprocessing


def resized_config(config: ClassifierConfig, size: tuple[int, int]) -> ClassifierConfig:
    """The configuration for pictures of `size` (height, width).

    Raises:
        ConfigurationError: a side is no multiple of the patch.
    """
    if any(side % config.patch or side < config.patch for side in size):
        raise ConfigurationError(
            f"the input size is {size[0]}x{size[1]} but each side must be a multiple of the patch, which is {config.patch}"
        )
    return replace(config, image_size=size)


def resized_positions(positions: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """[1, H·W, dim] of the grid `old` → [1, H·W, dim] of the grid `new`, bilinearly between cell centres."""
    if old == new:
        return positions
    grid = positions.unflatten(1, old).permute(0, 3, 1, 2)  # [1, dim, H, W]
    return interpolate(grid, size=new, mode="bilinear", align_corners=False).flatten(2).transpose(1, 2).contiguous()


def resized_preprocessing(preprocessing: Preprocessing, size: tuple[int, int]) -> Preprocessing:
    """As large a part of the picture as before, at the new size."""
    shorter = preprocessing.resize_shorter
    if shorter is not None:
        shorter = max(round(shorter * max(size) / max(preprocessing.size)), max(size))
    squeezed = preprocessing.resize
    if squeezed is not None:
        height, width = (round(a * b / c) for a, b, c in zip(squeezed, size, preprocessing.size, strict=True))
        squeezed = (max(height, size[0]), max(width, size[1]))
    return preprocessing.model_copy(update={"size": size, "resize_shorter": shorter, "resize": squeezed})
