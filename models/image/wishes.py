"""Preprocessing as the caller states it: single values, and a file in one of the forms in `forms`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gaussport.errors import UsageError

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


@dataclass(frozen=True, kw_only=True)
class PictureWishes:
    """Whatever is None or empty is left to the checkpoint. Sizes are (height, width) in pixels; `resize` of one number is
    the shorter side. `document` is the content of a preprocessing file, and `document_name` its name."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    resize: int | tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    interpolation: str | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    document_name: str = ""

    @property
    def stated(self) -> tuple[str, ...]:
        """The names of the single values that were given."""
        return tuple(n for n in ("mean", "std", "resize", "crop", "interpolation") if getattr(self, n) is not None)


def numbers(text: str, what: str) -> tuple[float, ...]:
    """The numbers of `0.485,0.456,0.406`.

    Raises:
        UsageError: they are not one number for grey or three for red, green and blue.
    """
    try:
        found = tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        found = ()
    if len(found) not in (1, 3):
        raise UsageError(f"{what} is {text!r} but must be one number for each channel: write 0.485,0.456,0.406")
    return found
