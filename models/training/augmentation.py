"""Random shifts, scalings, rotations and mirrorings of a batch, by one affine map a picture."""

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from gaussport.models.training.settings import Augmentation


def augment(pixels: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    """Each picture of [B, C, height, width] under its own random map; what moves in from outside repeats the border."""
    B = len(pixels)

    def spread(limit: float) -> Tensor:
        return (torch.rand(B, generator=generator) * 2 - 1) * limit

    angle = spread(math.radians(augmentation.rotation_degrees))
    zoom = 1 + spread(augmentation.scale)
    # Coordinates run from -1 to 1, so a shift of the whole side is 2.
    across, down = spread(2 * augmentation.shift), spread(2 * augmentation.shift)
    mirror = 1 - 2 * (torch.rand(B, generator=generator) < 0.5).float() if augmentation.mirror else torch.ones(B)
    cosine, sine = zoom * torch.cos(angle), zoom * torch.sin(angle)
    affine = torch.stack((cosine * mirror, -sine, across, sine * mirror, cosine, down), dim=1).view(B, 2, 3)
    grid = affine_grid(affine, list(pixels.shape), align_corners=False)
    return grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)
