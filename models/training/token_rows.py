"""Documents in memory as tokens, and the batches that training draws from them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaussport.errors import DataError, TextError
from gaussport.models.data.text_folder import LabelledDocuments
from gaussport.models.sequence.config import SequenceConfig
from gaussport.models.text import Tokenization, encode, pad_batch

LIMIT_TOKENS = 1_000_000_000
HALVINGS = 4
"""Rows of a batch are cut at the trained length, or at a half, a quarter or an eighth of it, batch by batch in turn: a model
that is to answer at every length, and early in a stream, sees many short beginnings and learns from more documents."""
BEGINNINGS = 0.5
"""The part of the cut documents that is read from the start; the others from anywhere."""


@dataclass(frozen=True)
class TokenRows:
    """Tokens of each document, [n] in int32, and classes [documents]."""

    documents: tuple[NDArray[np.int32], ...]
    targets: Tensor

    def __len__(self) -> int:
        return len(self.documents)

    @classmethod
    def of(cls, documents: LabelledDocuments, spec: Tokenization) -> "TokenRows":
        """All documents, whole.

        Raises:
            DataError: one cannot be read or made into tokens, or they are too many to hold.
        """
        rows, total = [], 0
        for file, document in zip(documents.files, documents, strict=True):
            try:
                rows.append(encode(document, spec).astype(np.int32))
            except TextError as error:
                raise DataError(f"{file} cannot be trained on: {error}") from None
            total += len(rows[-1])
            if total > LIMIT_TOKENS:
                raise DataError(f"the documents have more than {LIMIT_TOKENS:,} tokens, the limit in memory: use fewer")
        return cls(tuple(rows), torch.tensor(documents.targets))

    def plan(self, batch_size: int) -> list[tuple[int, int]]:
        """How an epoch's order of documents is cut into batches: (documents, halvings of the trained length) of each. All
        have about the tokens of `batch_size` rows at the trained length."""
        plan: list[tuple[int, int]] = []
        left = len(self)
        while left:
            halvings = len(plan) % HALVINGS
            plan.append((min(left, batch_size << halvings), halvings))
            left -= plan[-1][0]
        return plan

    def batches(
        self, config: SequenceConfig, spec: Tokenization, batch_size: int, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch: tokens [B, length] and classes [B], each document once."""
        order = torch.randperm(len(self), generator=generator)
        for count, halvings in self.plan(batch_size):
            indices, order = order[:count], order[count:]
            length = max(1, config.trained_length >> halvings)
            draws = torch.rand(count, 2, generator=generator, dtype=torch.float64).tolist()
            rows = [_cut(self.documents[i], length, *draw) for i, draw in zip(indices.tolist(), draws, strict=True)]
            yield torch.from_numpy(pad_batch(rows, spec)), self.targets[indices]


def _cut(tokens: NDArray[np.int32], length: int, place: float, kind: float) -> NDArray[np.int64]:
    over = len(tokens) - length
    start = int(place * (over + 1)) if over > 0 and kind >= BEGINNINGS else 0
    return tokens[start : start + length].astype(np.int64)
