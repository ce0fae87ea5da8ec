"""Every sequence classifier with GMA agrees with its oracle, which knows nothing of this project."""

import numpy as np
import pytest
import torch

from gaussport.models.attention.gma import GMAConfig
from tests.sequence.numpy_forward import logits
from tests.sequence.subjects import classifier, documents


@pytest.mark.parametrize("length", [1, 2, 7, 65, 150])
@pytest.mark.parametrize("preset", ["gma-bytes-tiny", "gma-bytes-tiny-causal"])
def test_a_classifier_agrees_with_the_oracle(preset: str, length: int) -> None:
    model = classifier(preset)
    attention = model.config.attention
    assert isinstance(attention, GMAConfig)
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    (row,) = documents([length])
    found = logits(
        weights, row.tolist(), model.config.causal, attention.epsilon, attention.variance_floor, model.config.norm_epsilon
    )
    with torch.inference_mode():
        np.testing.assert_allclose(model.double()(row[None])[0].numpy(), found, rtol=1e-9, atol=1e-9)
