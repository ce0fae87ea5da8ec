"""A document to tokens."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import TextError
from gaussport.models.text.tokenization import Tokenization


def encode(document: bytes | str, spec: Tokenization, folder: Path | None = None) -> NDArray[np.int64]:
    """The tokens [n] of a document, n ≥ 1, at whatever length it has: `windows` cuts them.

    A byte model takes any bytes, NUL among them; text is its UTF-8. A model with a tokenizer takes text, or bytes that are
    UTF-8; `folder` is where `spec.file` lies, which holds more about the tokenizer than this specification does.

    Raises:
        TextError: the document is empty, holds a lone surrogate, or is not UTF-8 where text is wanted.
    """
    if spec.kind == "bytes":
        data = _utf8(document) if isinstance(document, str) else document
        tokens = np.frombuffer(data, dtype=np.uint8).astype(np.int64)
    else:
        text = text_of(document)
        if folder is None:
            raise ValueError(f"{spec.file} is needed to make tokens: name the folder that it lies in")
        tokens = np.asarray(tokenizer(folder / spec.file).encode(text).ids, dtype=np.int64)
    if not len(tokens):
        raise TextError("the text is empty: send at least one character", "empty_text")
    return tokens


def text_of(document: bytes | str) -> str:
    """A document as text. Raises a TextError for bytes that are no UTF-8 and for lone surrogates."""
    text = document if isinstance(document, str) else _text(document)
    _utf8(text)
    return text


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(
            f"the text has a lone surrogate, U+{ord(text[error.start]):04X}, at character {error.start}, which no UTF-8 "
            "holds: send whole characters",
            "invalid_text",
        ) from None


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(f"the text is not UTF-8 at byte {error.start}: send it as UTF-8", "invalid_text") from None


@lru_cache(maxsize=8)
def tokenizer(path: Path) -> Any:
    """The tokenizer in that file, which neither pads nor cuts. Raises a TextError."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise TextError(
            f"{path.name} is read by the package tokenizers, which is not installed: pip install 'gaussport[tokenizers]'",
            "tokenizer_missing",
        ) from None
    try:
        found = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises Exception itself
        raise TextError(f"the tokenizer {path.name} cannot be read: {error}", "tokenizer_damaged") from None
    found.no_padding()
    found.no_truncation()
    return found
