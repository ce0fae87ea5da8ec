"""A model's documents as what it reads of them: tokens, cut into windows as its bundle says."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.store import Bundle
from gaussport.models.text import Tokenization, encode, windows
from gaussport.models.text.encode import tokenizer
from gaussport.serving.errors import RequestError

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Document:
    """One document as the model reads it: its windows, how many tokens it has, and what its sender should know."""

    windows: list[Tokens]
    tokens: int
    warnings: tuple[str, ...] = ()


class TextReader:
    """`most` is the largest document that is read, in tokens."""

    def __init__(self, bundle: Bundle, most: int) -> None:
        self.spec: Tokenization = bundle.manifest.tokenization
        self._most = most
        self._folder: TemporaryDirectory[str] | None = None
        if self.spec.file:
            # A copy with a name of its own: the bundle may be a zip, or another one when it is loaded again.
            self._folder = TemporaryDirectory(prefix="gaussport-")
            path = Path(self._folder.name) / self.spec.file
            bundle.copy(self.spec.file, path)
            tokenizer(path)

    @property
    def folder(self) -> Path | None:
        """Where the tokenizer lies; None for a model of bytes."""
        return None if self._folder is None else Path(self._folder.name)

    def tokens(self, document: bytes | str) -> Tokens:
        """Raises a TextError as `encode` does, and a RequestError `text_too_long`."""
        if self.spec.kind == "bytes":
            self.expect_fits(len(document))  # before eight bytes are made of each; a character is one byte at least
        tokens = encode(document, self.spec, self.folder)
        self.expect_fits(len(tokens))
        return tokens

    def read(self, document: bytes | str) -> Document:
        """Raises as `tokens`, and a TextError when the bundle refuses documents longer than a window."""
        return self.cut(self.tokens(document))

    def cut(self, tokens: Tokens) -> Document:
        """The windows of tokens that are there already."""
        self.expect_fits(len(tokens))
        found = windows(tokens, self.spec)
        return Document(found, len(tokens), self._warnings(len(tokens), len(found)))

    def _warnings(self, tokens: int, count: int) -> tuple[str, ...]:
        if tokens <= self.spec.max_tokens:
            return ()
        longer = f"the text has {tokens:,} tokens and the model reads {self.spec.max_tokens:,} at once"
        if self.spec.long_documents == "truncate":
            return (f"{longer}: the rest was not read",)
        return (f"{longer}: the answer is the mean of {count:,} windows, one every {self.spec.stride:,} tokens",)

    def expect_fits(self, tokens: int) -> None:
        if tokens > self._most:
            raise RequestError(
                f"the text has more than the {self._most:,} tokens that this server reads: send less of it", "text_too_long"
            )
