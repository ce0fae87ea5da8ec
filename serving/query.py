"""The query parameters of `/v1/classify`, read by hand: a model of them would cost more than the request itself."""

import math
from dataclasses import dataclass
from typing import Self

from starlette.datastructures import QueryParams

from gaussport.serving.errors import RequestError

_LONGEST_MS = 3_600_000
_HIGHEST = 1  # of Triton's priorities; 0 is the default and every other number is below 1


@dataclass(frozen=True)
class ClassifyQuery:
    """What the client wants to know, of which model, by when."""

    top_k: int
    model: str | None
    version: str | None
    timeout_ms: float | None
    urgent: bool

    @classmethod
    def of(cls, given: QueryParams) -> Self:
        """RequestError `bad_parameter` names the first at fault and never echoes its value."""
        return cls(
            _whole(given, "top_k", 5, 1),
            given.get("model"),
            given.get("version"),
            _timeout(given.get("timeout_ms")),
            _whole(given, "priority", 0, 0) == _HIGHEST,
        )


def _whole(given: QueryParams, name: str, default: int, least: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 100 and int(text) >= least):
        raise RequestError(f"parameter {name}: give a whole number of at least {least}", "bad_parameter")
    return int(text)


def _timeout(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST_MS:  # NaN compares false
        raise RequestError(f"parameter timeout_ms: give a number above 0, up to {_LONGEST_MS}", "bad_parameter")
    return value
