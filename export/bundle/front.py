"""What stands before a model: for pictures their preprocessing, for text its tokenization, told apart by their fields."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.text.tokenization import Tokenization

KINDS = PICTURES, TEXT = "of pictures", "of text"
"""Pydantic puts the kind among the places of a fault, where no file has these words."""


def _kind(front: Any) -> str:
    """Every tokenization states its window's length, which no preprocessing of pictures has."""
    text = isinstance(front, Tokenization) or (isinstance(front, dict) and "max_tokens" in front)
    return TEXT if text else PICTURES


Front = Annotated[
    Annotated[Preprocessing, Tag(PICTURES)] | Annotated[Tokenization, Tag(TEXT)],
    Discriminator(_kind),
]
