"""Tiles of a power of two over axes of any size."""

LEAST = 16  # the side of a matrix product's smallest tile


def cover(size: int) -> int:
    """The power of two that covers `size`, at least 16."""
    return max(1 << (size - 1).bit_length(), LEAST)


def tiles(size: int, tile: int) -> int:
    """How many tiles cover an axis."""
    return -(-size // tile)
