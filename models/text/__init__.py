"""From a document to the tokens a model was trained on, and from its windows' answers to one. NumPy and pydantic only: the
server imports this without torch."""

from gaussport.models.text.encode import encode
from gaussport.models.text.pieces import pieces
from gaussport.models.text.tokenization import BYTE_PAD, Tokenization
from gaussport.models.text.windows import join, pad_batch, windows

__all__ = ["BYTE_PAD", "Tokenization", "encode", "join", "pad_batch", "pieces", "windows"]
