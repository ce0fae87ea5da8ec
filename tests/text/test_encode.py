"""Any document becomes its bytes; what cannot is refused in one sentence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussport.errors import TextError
from gaussport.models.text import Tokenization, encode

SPEC = Tokenization.of_bytes(16)


@given(st.binary(min_size=1, max_size=64))
def test_any_bytes_are_their_own_tokens(document: bytes) -> None:
    tokens = encode(document, SPEC)
    assert tokens.dtype == np.int64
    assert bytes(tokens.tolist()) == document
    assert SPEC.pad not in tokens


@given(st.text(min_size=1, max_size=32))
def test_text_is_its_utf_8(document: str) -> None:
    assert bytes(encode(document, SPEC).tolist()).decode() == document


@given(st.text(max_size=8), st.characters(categories=["Cs"]), st.text(max_size=8))
def test_a_lone_surrogate_is_refused_and_placed(before: str, surrogate: str, after: str) -> None:
    with pytest.raises(
        TextError, match=rf"a lone surrogate, U\+{ord(surrogate):04X}, at character {len(before)},"
    ) as caught:
        encode(before + surrogate + after, SPEC)
    assert caught.value.code == "invalid_text"


@pytest.mark.parametrize("document", ["", b""])
def test_an_empty_text_is_refused(document: str | bytes) -> None:
    with pytest.raises(TextError, match="the text is empty") as caught:
        encode(document, SPEC)
    assert caught.value.code == "empty_text"
