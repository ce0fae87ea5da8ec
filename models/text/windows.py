"""Tokens to windows, windows to a batch, and the windows' answers to the document's."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gaussport.errors import TextError
from gaussport.models.text.tokenization import Tokenization

Tokens = NDArray[np.int64]


def windows(tokens: Tokens, spec: Tokenization) -> list[Tokens]:
    """What the model reads of a document, one row each of at most `spec.max_tokens`: the document itself where it fits.

    Windows begin every `spec.stride` tokens until one holds the document's end; the last is as long as what is left.

    Raises:
        TextError: the document is too long and `spec.long_documents` is `refuse`.
    """
    if len(tokens) <= spec.max_tokens:
        return [tokens]
    if spec.long_documents == "truncate":
        return [tokens[: spec.max_tokens]]
    if spec.long_documents == "refuse":
        raise TextError(
            f"the text has {len(tokens):,} tokens and the model reads {spec.max_tokens:,}: send less of it", "text_too_long"
        )
    last = -(-(len(tokens) - spec.max_tokens) // spec.stride) * spec.stride  # the first start that reaches the end
    return [tokens[start : start + spec.max_tokens] for start in range(0, last + 1, spec.stride)]


def pad_batch(rows: Sequence[Tokens], spec: Tokenization, length: int | None = None) -> Tokens:
    """The rows as one array [batch, length], filled up at the right with `spec.pad`; without a length, the longest row's.

    Raises:
        ValueError: there are no rows, or one is longer than `length`.
    """
    longest = max((len(row) for row in rows), default=0)
    length = longest if length is None else length
    if not rows or longest > length:
        raise ValueError(f"{len(rows)} rows of up to {longest} tokens do not fit a batch of length {length}")
    batch = np.full((len(rows), length), spec.pad, dtype=np.int64)
    for index, row in enumerate(rows):
        batch[index, : len(row)] = row
    return batch


def join(window_probabilities: ArrayLike, weights: ArrayLike) -> NDArray[np.float64]:
    """One document's probabilities [classes]: the mean of its windows' [windows, classes], weighted by their token counts.

    Raises:
        ValueError: there is not one positive weight for each window.
    """
    probabilities, counts = np.asarray(window_probabilities, np.float64), np.asarray(weights, np.float64)
    if probabilities.ndim != 2 or counts.shape != probabilities.shape[:1] or not len(counts) or not np.all(counts > 0):
        raise ValueError(
            f"windows' probabilities of shape {list(probabilities.shape)} need one positive weight each, "
            f"not weights of shape {list(counts.shape)}"
        )
    return np.asarray(np.average(probabilities, axis=0, weights=counts))
