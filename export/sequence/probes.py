"""What a proof feeds models that read tokens: every kind of text, every length and batch size, rows that are padded.

A batch is one long row and shorter ones beside it, filled up at the right, which is how a server makes batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.manifest import TensorSpec
from gaussport.export.inputs import Array, Inputs
from gaussport.export.probes import LAYOUTS_AT, Question, batch_sizes, layouts
from gaussport.models.text.tokenization import Tokenization
from gaussport.plugins.latent_memory_routing.memory_product import CHUNK

Tokens = NDArray[np.int64]

TOKENS = "tokens"
"""The input that takes tokens, in the graphs that we write."""
LENGTH = "length"
"""The axis of a row's tokens, which has any size."""
MOST_TOKENS = 1 << 15
"""The largest batch that a proof runs, rows times length: at the longest length there are fewer rows."""

_KINDS = ("noise", "text", "one token", "ends")
_ODD = 7
_ALPHABET = 24
_REPEATS = 1.3  # the exponent of Zipf's law, as in words and letters


def tokens_spec(batch: str = "batch") -> TensorSpec:
    """The input that takes rows of tokens, any number of any length."""
    return TensorSpec(name=TOKENS, dtype="int64", shape=(batch, LENGTH))


@dataclass(frozen=True)
class TokenProbes:
    """Makes batches for models that take tokens [batch, length] of a vocabulary in which `pad` is padding, rows of up to
    `longest` tokens; `trained` is the length that they were trained at."""

    vocabulary: int
    pad: int
    longest: int
    trained: int
    name: str = TOKENS

    @classmethod
    def of(cls, tokenization: Tokenization, trained: int, name: str = TOKENS) -> "TokenProbes":
        """Probes of everything that the tokenization may make."""
        return cls(tokenization.vocabulary, tokenization.pad, tokenization.max_tokens, trained, name)

    @property
    def lengths(self) -> list[int]:
        """1, 2, an odd one, both sides of where causal order is cut into chunks, the trained length and the longest."""
        wished = {1, 2, _ODD, CHUNK, CHUNK + 1, self.trained, self.longest}
        return sorted(length for length in wished if length <= self.longest)

    def questions(self, max_batch: int, documents: Sequence[Tokens] = ()) -> list[Question]:
        """Every length and batch size, as far as `MOST_TOKENS` go; every memory layout; and the documents one by one."""
        asked = [Question(f"{name}, length {length}", self._inputs(rows))
                 for size in batch_sizes(max_batch)
                 for length in self._lengths_at(size, max_batch)
                 for name, rows in self.rows(min(size, max(1, MOST_TOKENS // length)), length)]  # fmt: skip
        odd = next(question for question in reversed(asked) if question.rows == LAYOUTS_AT)
        asked += [Question(odd.probe, inputs, layout) for layout, inputs in layouts(odd.inputs)]
        shown = enumerate(documents, start=1)
        return asked + [Question(f"document {n}", self._inputs(tokens[np.newaxis])) for n, tokens in shown]

    def batches(self, size: int) -> Iterator[tuple[str, Inputs]]:
        """Batches of that size by name, of the trained length and of the shortest."""
        for length in {1, min(self.trained, self.longest)}:
            for name, rows in self.rows(size, length):
                yield f"{name}, length {length}", self._inputs(rows)

    def with_samples(self, samples: Array) -> Inputs:
        """What a model reads of a batch of documents that were padded already."""
        return self._inputs(samples)

    def _lengths_at(self, size: int, max_batch: int) -> list[int]:
        """All lengths alone and at the odd batch size; elsewhere those that are served most, for time's sake."""
        if size in (1, LAYOUTS_AT):
            return self.lengths
        ends = {2, self.trained, self.longest} if size == max_batch else {CHUNK + 1, self.trained}
        return [length for length in self.lengths if length in ends] or self.lengths[-1:]

    def rows(self, size: int, length: int) -> Iterator[tuple[str, Tokens]]:
        random = np.random.default_rng([size, length])
        if size == 1:
            for kind in _KINDS:
                yield kind, self._one(kind, length, random)[np.newaxis]
            return
        rows = np.full((size, length), self.pad, dtype=np.int64)
        for row in range(size):
            own = length if row == 0 else 1 if row == 1 else int(random.integers(1, length, endpoint=True))
            rows[row, :own] = self._one(_KINDS[(row + size) % len(_KINDS)], own, random)
        yield "mixture", rows

    def _one(self, kind: str, length: int, random: np.random.Generator) -> Tokens:
        known = np.delete(np.arange(self.vocabulary), self.pad)
        if kind == "text":
            letters = random.choice(known, min(_ALPHABET, len(known)), replace=False)
            share = np.arange(1, len(letters) + 1) ** -_REPEATS
            return np.asarray(random.choice(letters, length, p=share / share.sum()))
        if kind == "one token":
            return np.full(length, known[random.integers(len(known))])
        if kind == "ends":
            return np.asarray(np.where(np.arange(length) % 2 == 0, known[0], known[-1]))
        return np.asarray(random.choice(known, length))

    def _inputs(self, rows: Tokens) -> Inputs:
        return {self.name: rows}
