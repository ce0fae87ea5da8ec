"""What the shapes of a classifier's parameters tell of its configuration, each fact with where it was read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

from gaussport.models.attention import families
from gaussport.models.checkpoint.layouts import patch_of

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Fact:
    """A field of the configuration (`attention.` before those of the attention), its value, and where it comes from."""

    field: str
    value: Any
    origin: str


def facts_from(shapes: Shapes, sizes: Mapping[str, object]) -> dict[str, Fact]:
    """Everything that is certain. `sizes` are those that the file's own layout told (see `layouts`)."""
    found: dict[str, Fact] = {}

    def tell(field: str, value: Any, name: str) -> None:
        found[field] = Fact(field, value, f"{name} {list(shapes[name])}")

    if len(shapes.get("head.weight", ())) == 2:
        tell("classes", shapes["head.weight"][0], "head.weight")
    if len(shapes.get("patch_embed.weight", ())) == 2:
        dim, numbers = shapes["patch_embed.weight"]
        tell("dim", dim, "patch_embed.weight")
        candidates = list(patch_of(numbers))
        if len(candidates) == 1 and "patch" not in sizes:
            tell("patch", candidates[0][0], "patch_embed.weight")
            tell("channels", candidates[0][1], "patch_embed.weight")
    for field in ("patch", "channels"):
        if field in sizes:
            found[field] = Fact(field, sizes[field], "the convolution that patch_embed is in the file")
    if len(shapes.get("token_embed.weight", ())) == 2:
        tell("vocabulary", shapes["token_embed.weight"][0], "token_embed.weight")
        tell("dim", shapes["token_embed.weight"][1], "token_embed.weight")
    if len(shapes.get("blocks.0.conv.weight", ())) == 3:
        tell("convolution", shapes["blocks.0.conv.weight"][2], "blocks.0.conv.weight")
    depth = _depth(shapes)
    if depth:
        found["depth"] = Fact("depth", depth, f"blocks.0 … blocks.{depth - 1}" if depth > 1 else "blocks.0")
    if "dim" in found and len(shapes.get("blocks.0.mlp.0.weight", ())) == 2:
        tell("mlp_ratio", shapes["blocks.0.mlp.0.weight"][0] / found["dim"].value, "blocks.0.mlp.0.weight")
    if "dim" in found:
        found.update(_attention(shapes, found["dim"].value))
    if "grid" in sizes and "patch" in found:
        size = tuple(side * found["patch"].value for side in sizes["grid"])  # type: ignore[attr-defined]
        found["image_size"] = Fact("image_size", size, "the grid that pos_embed has in the file")
    return found


def square_image(shapes: Shapes, facts: Mapping[str, Any]) -> tuple[int, int] | None:
    """The image_size of a square grid of as many cells as `pos_embed` has; None when no square has so many."""
    positions = shapes.get("pos_embed", ())
    if len(positions) != 3 or type(facts.get("patch")) is not int or isqrt(positions[1]) ** 2 != positions[1]:
        return None
    side = isqrt(positions[1]) * facts["patch"]
    return (side, side) if side else None


def _depth(shapes: Shapes) -> int:
    """The number of blocks when they are numbered from 0 without a gap, else 0."""
    indices = {int(match[1]) for name in shapes if (match := re.match(r"blocks\.(\d+)\.", name))}
    return len(indices) if indices == set(range(len(indices))) else 0


def _attention(shapes: Shapes, dim: int) -> dict[str, Fact]:
    prefix = "blocks.0.attn."
    layer = {name.removeprefix(prefix): shape for name, shape in shapes.items() if name.startswith(prefix)}
    for family in families().values():
        told = family.recognise(layer, dim)
        if told is not None:
            origin = f"{prefix}mu {list(layer['mu'])}" if "mu" in layer else f"the names under {prefix[:-1]}"
            facts = {"attention.family": Fact("attention.family", family.name, f"the names under {prefix[:-1]}")}
            return facts | {f"attention.{key}": Fact(f"attention.{key}", value, origin) for key, value in told.items()}
    return {}
