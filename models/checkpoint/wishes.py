"""What the caller says about a checkpoint that the file does not: which weights, which names, which values."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gaussport.errors import UsageError
from gaussport.models.image.wishes import PictureWishes
from gaussport.models.text.wishes import TextWishes


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How to read a checkpoint. Everything has a default that reads a complete one.

    `weights` is `raw`, `ema`, or the key of a set in the file; None takes the moving average where there is one.
    `rename` are pairs of a regular expression and its replacement, tried on every name in this order; a name that becomes
    empty is left out. `settings` are fields of the configuration. `input_size` is (height, width) in pixels, another one
    than the model was trained on. `known` is what a former reading settled: it replaces defaults, and nothing else.
    """

    weights: str | None = None
    rename: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    pictures: PictureWishes = field(default_factory=PictureWishes)
    text: TextWishes = field(default_factory=TextWishes)
    input_size: tuple[int, int] | None = None
    known: Mapping[str, Any] = field(default_factory=dict)


def renames(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of `OLD=NEW`, split at the last `=`, which no parameter's name holds.

    Raises:
        UsageError: there is no `=`, or OLD is not a regular expression, or NEW refers to a group that OLD lacks.
    """
    pairs = []
    for text in texts:
        old, separator, new = text.rpartition("=")
        if not separator or not old:
            raise UsageError(f"the rename {text!r} is not OLD=NEW: write a regular expression, '=' and its replacement")
        try:
            re.compile(old).sub(new, "")
        except (re.error, IndexError) as error:
            raise UsageError(f"the rename {text!r} has an expression that cannot be used: {error}") from None
        pairs.append((old, new))
    return tuple(pairs)


def settings(texts: Sequence[str]) -> dict[str, Any]:
    """The values of `FIELD=VALUE`, where VALUE is JSON or else a word.

    Raises:
        UsageError: there is no `=`, or a field is set twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"the setting {text!r} is not FIELD=VALUE: write it like heads=4 or gelu=tanh")
        if name in found:
            raise UsageError(f"{name} is set twice: set it once")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found


def image_size(text: str) -> tuple[int, int]:
    """(height, width) of `N` or `HxW`, in pixels.

    Raises:
        UsageError: it is neither.
    """
    match = re.fullmatch(r"(\d{1,5})(?:[x×](\d{1,5}))?", text.strip())
    if not match or not int(match[1]) or (match[2] and not int(match[2])):
        raise UsageError(f"the size {text!r} is neither a number of pixels nor HEIGHTxWIDTH: write 256 or 256x192")
    return int(match[1]), int(match[2] or match[1])
