"""What each token of a document stands for, as text to show to people."""

from pathlib import Path

from gaussport.models.text.encode import text_of, tokenizer
from gaussport.models.text.tokenization import Tokenization


def pieces(document: bytes | str, spec: Tokenization, folder: Path | None = None) -> list[str]:
    """One piece of text for each token of `encode(document, spec, folder)`, in order. Of a character with several bytes the
    first byte has it and the others have nothing; a byte that is no UTF-8 is shown as \\xNN. Of a tokenizer's tokens each
    has its part of the text.

    Raises:
        TextError: as `encode`.
    """
    if spec.kind == "bytes":
        return _of_bytes(document.encode("utf-8") if isinstance(document, str) else document)
    if folder is None:
        raise ValueError(f"{spec.file} is needed to make tokens: name the folder that it lies in")
    text = text_of(document)
    encoded = tokenizer(folder / spec.file).encode(text)
    return [text[start:end] for start, end in encoded.offsets]


def _of_bytes(data: bytes) -> list[str]:
    found: list[str] = []
    for character in data.decode("utf-8", errors="surrogateescape"):
        if "\udc80" <= character <= "\udcff":  # one byte that is none of UTF-8's
            found.append(f"\\x{ord(character) - 0xDC00:02x}")
        else:
            found.append(character)
            found += [""] * (len(character.encode("utf-8")) - 1)
    return found
