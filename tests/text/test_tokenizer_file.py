"""A `tokenizer.json` of the package tokenizers gives the tokens that the package gives; its absence and damage are told."""

from pathlib import Path

import numpy as np
import pytest

from gaussport.errors import TextError
from gaussport.models.text import Tokenization, encode

tokenizers = pytest.importorskip("tokenizers")

SPEC = Tokenization(kind="tokenizers", file="tokenizer.json", vocabulary=6, pad=0, max_tokens=8, stride=4)
VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "a": 2, "long": 3, "page": 4, "manual": 5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(2)  # what a file says of lengths must not cut: `windows` does, and says so
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("document", ["a long manual page, really", b"a long manual page, really"])
def test_tokens_are_the_packages_without_its_padding_and_truncation(folder: Path, document: str | bytes) -> None:
    np.testing.assert_array_equal(encode(document, SPEC, folder), [2, 3, 5, 4, 1, 1])


def test_bytes_that_are_no_utf_8_are_refused(folder: Path) -> None:
    with pytest.raises(TextError, match="not UTF-8 at byte 2") as caught:
        encode(b"a \xff", SPEC, folder)
    assert caught.value.code == "invalid_text"


def test_text_that_gives_no_token_is_refused(folder: Path) -> None:
    with pytest.raises(TextError, match="the text is empty"):
        encode("   ", SPEC, folder)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TextError, match=r"the tokenizer tokenizer\.json cannot be read"):
        encode("a", SPEC, tmp_path)
