"""Windows cover a document, a batch keeps its rows, and the windows' answers make one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussport.errors import TextError
from gaussport.models.text import Tokenization, join, pad_batch, windows


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, Tokenization]:
    longest = draw(st.integers(1, 40))
    return draw(st.integers(1, 200)), Tokenization(max_tokens=longest, stride=draw(st.integers(1, longest)))


@given(cases())
def test_windows_hold_every_token_and_none_is_in_vain(case: tuple[int, Tokenization]) -> None:
    n, spec = case
    tokens = np.arange(n)
    rows = windows(tokens, spec)
    assert set(np.concatenate(rows).tolist()) == set(range(n))
    assert all(len(row) == spec.max_tokens for row in rows[:-1])
    assert [int(row[0]) for row in rows] == [spec.stride * index for index in range(len(rows))]
    assert 1 <= len(rows[-1]) <= spec.max_tokens
    assert all(row[-1] < n - 1 for row in rows[:-1])  # the last is the first that reaches the end


@given(cases())
def test_a_truncated_document_is_its_beginning(case: tuple[int, Tokenization]) -> None:
    n, spec = case
    (row,) = windows(np.arange(n), spec.model_copy(update={"long_documents": "truncate"}))
    np.testing.assert_array_equal(row, np.arange(min(n, spec.max_tokens)))


def test_a_document_that_is_too_long_is_refused_where_that_is_asked() -> None:
    spec = Tokenization(max_tokens=4, stride=2, long_documents="refuse")
    assert len(windows(np.arange(4), spec)) == 1
    with pytest.raises(TextError, match="the text has 5 tokens and the model reads 4") as caught:
        windows(np.arange(5), spec)
    assert caught.value.code == "text_too_long"


@given(st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=9), min_size=1, max_size=5), st.integers(0, 4))
def test_a_batch_holds_its_rows_and_padding_after_them(rows: list[list[int]], more: int) -> None:
    spec = Tokenization.of_bytes(16)
    length = max(map(len, rows)) + more
    batch = pad_batch([np.array(row) for row in rows], spec, length)
    assert batch.shape == (len(rows), length)
    assert batch.dtype == np.int64
    for given_row, row in zip(rows, batch, strict=True):
        np.testing.assert_array_equal(row, given_row + [spec.pad] * (length - len(given_row)))


def test_a_batch_is_as_long_as_its_longest_row_and_never_cuts_one() -> None:
    spec = Tokenization.of_bytes(16)
    rows = [np.arange(3), np.arange(5)]
    assert pad_batch(rows, spec).shape == (2, 5)
    with pytest.raises(ValueError, match="2 rows of up to 5 tokens do not fit a batch of length 4"):
        pad_batch(rows, spec, 4)
    with pytest.raises(ValueError, match="0 rows"):
        pad_batch([], spec)


def test_windows_count_by_their_tokens() -> None:
    np.testing.assert_allclose(join([[1.0, 0.0], [0.0, 1.0]], [30, 10]), [0.75, 0.25])
    np.testing.assert_allclose(join([[0.2, 0.8]], [7]), [0.2, 0.8])
    for weights in ([1.0], [1.0, 0.0], []):
        with pytest.raises(ValueError, match="need one positive weight each"):
            join([[1.0, 0.0], [0.0, 1.0]], weights)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"stride": 9}, "stride is 9, more than a window's 8 tokens"),
        ({"pad": 300}, "pad is 300"),
        ({"pad": 0}, "tokens that are bytes have"),
        ({"file": "tokenizer.json"}, "tokens that are bytes have"),
        ({"kind": "tokenizers", "vocabulary": 10, "pad": 0}, "must name the tokenizer's file"),
        ({"kind": "tokenizers", "vocabulary": 10, "pad": 0, "file": "../x.json"}, "must name the tokenizer's file"),
        ({"max_tokens": 0}, "greater than or equal to 1"),
        ({"words": 3}, "Extra inputs"),
    ],
)
def test_an_impossible_tokenization_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Tokenization.model_validate({"max_tokens": 8, "stride": 4, **changes})
