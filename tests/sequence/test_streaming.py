"""A stream of chunks, cut anywhere, answers as the whole sequence; so do many streams in one batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussport.errors import ConfigurationError
from tests.sequence.subjects import classifier, documents, padded

CAUSAL = "gma-bytes-tiny-causal"


@pytest.mark.parametrize("pooling", ["mean", "last"])
@settings(max_examples=15, deadline=None)
@given(chunks=st.lists(st.integers(1, 150), min_size=1, max_size=6))
def test_any_chunks_answer_as_the_whole(pooling: str, chunks: list[int]) -> None:
    model = classifier(CAUSAL, pooling=pooling)
    (row,) = documents([sum(chunks)])
    state, read = model.initial_state(1), 0
    with torch.inference_mode():
        for chunk in chunks:
            logits, state = model.step(row[None, read : read + chunk], state)
            read += chunk
            torch.testing.assert_close(logits, model(row[None, :read]), atol=1e-4, rtol=1e-4)
    assert state["count"].tolist() == [len(row)]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_streams_in_one_batch_do_not_know_of_each_other(data: st.DataObject) -> None:
    """Each round gives every stream as many tokens as it likes, none among them; the batch is as long as the longest."""
    model = classifier(CAUSAL)
    rounds = data.draw(st.lists(st.lists(st.integers(0, 70), min_size=3, max_size=3), min_size=1, max_size=5))
    rows = documents([max(1, sum(counts)) for counts in zip(*rounds, strict=True)])
    state, read = model.initial_state(3), [0, 0, 0]
    with torch.inference_mode():
        for counts in rounds:
            chunks = [row[start : start + count] for row, start, count in zip(rows, read, counts, strict=True)]
            logits, state = model.step(padded(chunks, max(1, *counts)), state)
            read = [start + count for start, count in zip(read, counts, strict=True)]
        for index, count in enumerate(read):
            if count:
                whole = model(rows[index][None, :count])
                torch.testing.assert_close(logits[index : index + 1], whole, atol=1e-4, rtol=1e-4)


def test_a_stream_without_a_token_in_a_round_stays_as_it_is() -> None:
    model = classifier(CAUSAL)
    with torch.inference_mode():
        before, state = model.step(documents([33])[0][None], model.initial_state(1))
        after, following = model.step(torch.full((1, 9), 256), state)
    torch.testing.assert_close(after, before)
    assert list(following) == list(state) == list(model.initial_state(1))
    for part, tensor in state.items():
        torch.testing.assert_close(following[part], tensor, msg=part)


def test_the_state_has_one_size_at_any_length() -> None:
    model = classifier(CAUSAL)
    with torch.inference_mode():
        _, state = model.step(documents([700])[0][None], model.initial_state(1))
    fresh = model.initial_state(1)
    assert {part: (t.shape, t.dtype) for part, t in state.items()} == {part: (t.shape, t.dtype) for part, t in fresh.items()}
    attention, config = model.config.attention, model.config
    components = attention.components  # type: ignore[attr-defined]
    memory = attention.heads * components * (config.dim // attention.heads + 1)
    numbers = config.depth * (memory + (config.convolution - 1) * config.dim) + config.dim + 1
    assert sum(t.numel() for t in state.values()) == numbers


@pytest.mark.parametrize("preset", ["gma-bytes-tiny", "dot-bytes-tiny-causal", "dot-bytes-tiny"])
def test_other_models_do_not_stream(preset: str) -> None:
    model = classifier(preset)
    with pytest.raises(ConfigurationError, match="this model cannot stream: its attention is"):
        model.initial_state(1)
    with pytest.raises(ConfigurationError, match="only causal gma keeps a memory"):
        model.step(torch.zeros(1, 3, dtype=torch.int64), {})
