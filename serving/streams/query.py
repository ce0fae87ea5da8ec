"""The query parameters of streams."""

import math
from dataclasses import dataclass
from typing import Self

from starlette.datastructures import QueryParams

from gaussport.serving.errors import RequestError
from gaussport.serving.query import ClassifyQuery

_MOST_TOKENS = 1 << 62


@dataclass(frozen=True)
class ChunkQuery:
    """What a client wants to know of a chunk, by when, and where it believes that the chunk begins."""

    asked: ClassifyQuery
    offset: int | None

    @classmethod
    def of(cls, given: QueryParams) -> Self:
        """RequestError `bad_parameter` names the first at fault."""
        text = given.get("offset")
        if text is not None and not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < _MOST_TOKENS):
            raise RequestError("parameter offset: give the whole number of tokens before the chunk", "bad_parameter")
        return cls(ClassifyQuery.of(given), None if text is None else int(text))


def ttl_of(given: QueryParams) -> float | None:
    """Seconds that a stream may be idle; None where the client leaves it to the server."""
    text = given.get("ttl_s")
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 86_400:  # NaN compares false
        raise RequestError("parameter ttl_s: give a number above 0, up to 86400", "bad_parameter")
    return value
