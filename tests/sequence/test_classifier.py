"""A sequence classifier answers each row as if it were alone, in whatever company, and knows order as far as it should."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussport.models.sequence import SequenceClassifier
from tests.sequence.subjects import PRESETS, classifier, documents, padded


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=8, deadline=None)
@given(lengths=st.lists(st.integers(1, 150), min_size=1, max_size=4), more=st.integers(0, 70))
def test_a_padded_batch_answers_as_each_row_alone(preset: str, pooling: str, lengths: list[int], more: int) -> None:
    model = classifier(preset, pooling=pooling)
    rows = documents(lengths)
    with torch.inference_mode():
        together = model(padded(rows, max(lengths) + more))
        alone = torch.cat([model(row[None]) for row in rows])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_row_of_padding_alone_is_finite_and_disturbs_no_other(preset: str) -> None:
    model = classifier(preset)
    rows = documents([20, 1])
    with torch.inference_mode():
        batch = torch.cat([padded(rows, 30), torch.full((1, 30), 256)])
        logits = model(batch)
        torch.testing.assert_close(logits[:2], model(padded(rows, 30)))
    assert logits.isfinite().all()


@pytest.mark.parametrize("preset", PRESETS)
def test_gradients_of_padding_are_nothing(preset: str) -> None:
    model = classifier(preset)
    (row,) = documents([10])
    model(padded([row], 40)).square().sum().backward()
    gradient = model.token_embed.weight.grad
    assert gradient is not None
    assert gradient.isfinite().all()
    assert not gradient[256].any()
    assert gradient[row[0]].any()


@pytest.mark.parametrize("preset", PRESETS)
def test_order_matters(preset: str) -> None:
    model = classifier(preset)
    (row,) = documents([64])
    turned = row.flip(0)
    with torch.inference_mode():
        assert (model(row[None]) - model(turned[None])).abs().max() > 1e-3


@pytest.mark.parametrize(("preset", "knows"), [(name, "causal" not in name) for name in PRESETS])
def test_only_a_bidirectional_model_knows_what_comes_after(preset: str, knows: bool) -> None:
    """Of a causal model's last block, the tokens before a change are what they were."""
    model = classifier(preset)
    seen: list[torch.Tensor] = []
    model.norm.register_forward_hook(lambda _module, _given, out: seen.append(out))
    (row,) = documents([90])
    changed = row.clone()
    changed[60:] = (changed[60:] + 7) % 256
    with torch.inference_mode():
        model(row[None])
        model(changed[None])
    difference = (seen[0] - seen[1]).abs()[0, :50].max()
    assert (difference > 1e-4) == knows


def test_beyond_the_trained_length_nothing_ends() -> None:
    model = classifier("gma-bytes-tiny-causal")
    (row,) = documents([model.config.trained_length * 50])
    with torch.inference_mode():
        assert model(row[None]).isfinite().all()


def test_the_attention_gets_the_padding_as_key_mask() -> None:
    model: SequenceClassifier = classifier("gma-bytes-tiny")
    masks: list[torch.Tensor] = []
    attention = model.get_submodule("blocks.0.attn")
    attention.register_forward_pre_hook(lambda _module, given: masks.append(given[1]))
    with torch.inference_mode():
        model(torch.tensor([[1, 0, 256], [255, 256, 256]]))
    torch.testing.assert_close(masks[0], torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))


@pytest.mark.parametrize("preset", ["gma-bytes-tiny", "gma-bytes-tiny-causal"])
def test_training_mode_is_the_same_function_with_the_same_gradients(preset: str) -> None:
    """On a processor the attention is differentiated by torch in training, and by the operator's own rule otherwise."""
    found = []
    batch = padded(documents([100, 30]), 110)
    for training in (True, False):
        model = classifier(preset).train(training)
        logits = model(batch)
        logits.square().sum().backward()
        found.append([logits.detach(), *(parameter.grad for parameter in model.parameters())])
    for trained, evaluated in zip(*found, strict=True):
        assert trained is not None
        assert evaluated is not None
        torch.testing.assert_close(trained, evaluated, rtol=1e-4, atol=1e-4 * float(evaluated.abs().max()))
