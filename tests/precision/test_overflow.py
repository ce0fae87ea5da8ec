"""Layers that leave a format's range are found by name, by weight and by activation, before anything is narrowed."""

import numpy as np

from gaussport.export.precision.formats import BF16, FP16
from gaussport.export.precision.layers import RESIDUAL
from gaussport.export.precision.overflow import overflowing
from tests.precision.subjects import Zoo


def test_zoo_models_stay_in_range(each: Zoo) -> None:
    assert overflowing(each.model, FP16, [{"pixels": each.digits[:32]}]) == {}


def test_a_weight_beyond_the_range_is_named(ssog: Zoo) -> None:
    def spiked(weight: np.ndarray) -> np.ndarray:
        changed = weight.copy()
        changed[3, 5] = -7e4
        return changed

    model = ssog.with_tensor("blocks.2.attn.v.weight.T", spiked)
    reasons = overflowing(model, FP16, [])
    assert reasons == {
        "blocks.2.attn.v": "its weight blocks.2.attn.v.weight.T reaches 7e+04 and float16 ends at 65504",
    }
    assert overflowing(model, BF16, []) == {}


def test_an_activation_beyond_the_range_keeps_all_that_touch_it(ssog: Zoo) -> None:
    model = ssog.with_tensor("blocks.1.mlp.0.bias", lambda bias: bias + np.float32(1e5))
    reasons = overflowing(model, FP16, [{"pixels": ssog.digits[:8]}])
    assert {"blocks.1.mlp.0", "blocks.1.mlp.1", "blocks.1.mlp.2"} <= reasons.keys()
    assert "blocks.0.mlp.0" not in reasons


def test_a_stream_near_the_end_of_the_range_is_kept(ssog: Zoo) -> None:
    near = ssog.with_tensor("pos_embed", lambda embedding: embedding + np.float32(4e4))
    assert RESIDUAL in overflowing(near, FP16, [{"pixels": ssog.digits[:8]}])


def test_what_is_no_number_is_out_of_range(ssog: Zoo) -> None:
    model = ssog.with_tensor("patch_embed.bias", lambda bias: np.full_like(bias, np.nan))
    assert "patch_embed" in overflowing(model, FP16, [{"pixels": ssog.digits[:8]}])
