"""Tokenization as the caller states it, where the checkpoint's own is not wanted or there is none."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONG_DOCUMENTS = ("windows", "truncate", "refuse")


@dataclass(frozen=True, kw_only=True)
class TextWishes:
    """Whatever is None is left to the checkpoint. `tokenizer` is a `tokenizer.json` of the package tokenizers; windows
    overlap by half unless a `stride` says otherwise."""

    tokenizer: Path | None = None
    max_tokens: int | None = None
    stride: int | None = None
    long_documents: str | None = None

    def applied(self, stated: dict[str, Any]) -> dict[str, Any]:
        """The fields of a tokenization, changed as wished."""
        fields = dict(stated)
        if self.max_tokens is not None:
            fields |= {"max_tokens": self.max_tokens, "stride": max(1, self.max_tokens // 2)}
        wished = {"stride": self.stride, "long_documents": self.long_documents}
        return fields | {name: value for name, value in wished.items() if value is not None}
