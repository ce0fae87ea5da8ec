"""How a document becomes tokens, and what happens to one that is longer than the model was proved for."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

BYTE_PAD = 256
"""The padding token of byte models: the first number that is no byte."""


class Tokenization(BaseModel):
    """The text counterpart of `Preprocessing`: training, verifying, serving and the client all go by it.

    A document of more than `max_tokens` tokens is read in `windows` of that many, one every `stride` tokens, and their
    probabilities are averaged by the tokens in each; or only its first `max_tokens` are read (`truncate`); or it is refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["bytes", "tokenizers"] = "bytes"
    """`bytes`: a token is a byte. `tokenizers`: those of a `tokenizer.json` of the PyPI package tokenizers."""
    file: str = ""
    """The tokenizer's file inside the bundle; empty for bytes."""
    vocabulary: int = Field(default=BYTE_PAD + 1, ge=2)
    """How many tokens there are, the padding among them."""
    pad: int = Field(default=BYTE_PAD, ge=0)
    """The token that fills a row of a batch up; no document holds it."""
    max_tokens: int = Field(ge=1, le=1 << 24)
    """The longest window that was proved, in tokens."""
    long_documents: Literal["windows", "truncate", "refuse"] = "windows"
    stride: int = Field(ge=1)
    answer: Literal["mean"] = "mean"

    @model_validator(mode="after")
    def _agrees(self) -> "Tokenization":
        if self.pad >= self.vocabulary:
            raise ValueError(f"pad is {self.pad} but must be one of the {self.vocabulary} tokens of the vocabulary")
        if self.stride > self.max_tokens:
            raise ValueError(
                f"stride is {self.stride}, more than a window's {self.max_tokens} tokens: some would not be read"
            )
        if self.kind == "bytes" and (self.file or self.pad != BYTE_PAD or self.vocabulary != BYTE_PAD + 1):
            raise ValueError(f"tokens that are bytes have no file, a vocabulary of {BYTE_PAD + 1} and {BYTE_PAD} as pad")
        if self.kind == "tokenizers" and (not self.file or "/" in self.file or "\\" in self.file or self.file[0] == "."):
            raise ValueError(f"file is {self.file!r} but must name the tokenizer's file inside the bundle")
        return self

    @classmethod
    def of_bytes(cls, max_tokens: int) -> "Tokenization":
        """Bytes, in windows of `max_tokens` that overlap by half."""
        return cls(max_tokens=max_tokens, stride=max(1, max_tokens // 2))
