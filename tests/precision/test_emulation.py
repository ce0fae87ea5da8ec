"""Rounding at every step shows what CPU kernels hide, and does what hardware does: one rounding of a float32 sum."""

import copy

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gaussport.errors import ExportError
from gaussport.export.passes import operate
from gaussport.export.precision.casting import narrow
from gaussport.export.precision.emulation import emulated
from gaussport.export.precision.formats import BF16, FP16, Format
from gaussport.export.precision.runners import has_cpu_kernels
from tests.precision.subjects import Zoo, run

_CHAIN = """
<ir_version: 10, opset_import: ["" : 20]>
chain (float[N, 4] x) => (float[N, 4] y) <{type}[4, 4] w = {{ {weights} }}> {{
  a = Cast <to = {code}> (x)
  b = MatMul (a, w)
  c = MatMul (b, w)
  y = Cast <to = 1> (c)
}}
"""


def chain(format: Format, weights: np.ndarray) -> onnx.ModelProto:
    """Two products in `format`, between float32 ends."""
    zeros = ", ".join(["0"] * 16)
    model = onnx.parser.parse_model(_CHAIN.format(type=format.long_name, code=format.onnx, weights=zeros))
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights.astype(format.numpy), "w"))
    return model


def test_an_overflow_between_two_nodes_shows() -> None:
    shrink_after_growth = np.diag([10, 10, 0.01, 0.01])[[1, 2, 3, 0]]
    x = np.full((1, 4), 20000, np.float32)
    model = chain(FP16, shrink_after_growth)
    assert np.isfinite(run(model, x)).all()  # ONNX Runtime's CPU kernels keep 200,000 between the two
    assert not np.isfinite(run(emulated(model), x)).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from([(FP16, torch.float16), (BF16, torch.bfloat16)]))
def test_products_equal_those_of_torch(seed: int, formats: tuple[Format, torch.dtype]) -> None:
    format, dtype = formats
    random = np.random.default_rng(seed)
    x, w = random.standard_normal((3, 4), dtype=np.float32), random.standard_normal((4, 4))
    found = run(emulated(chain(format, w)), x)
    weights = torch.from_numpy(w.astype(np.float32)).to(dtype)
    expected = (torch.from_numpy(x).to(dtype) @ weights @ weights).float().numpy()
    one_step = np.abs(expected).max() * 2.0 ** (-10 if format is FP16 else -7)  # sums of four may round either way
    assert np.abs(found - expected).max() <= one_step


@pytest.mark.parametrize(("format", "dtype"), [(FP16, torch.float16), (BF16, torch.bfloat16)], ids=["fp16", "bf16"])
def test_a_whole_model_is_nearer_to_float32_than_the_module_cast_as_a_whole(
    each: Zoo, format: Format, dtype: torch.dtype
) -> None:
    model = emulated(operate(each.model, lambda graph: narrow(graph, format)))
    pixels = each.digits[:32]
    with torch.no_grad():
        cast = copy.deepcopy(each.module).to(dtype)(torch.from_numpy(pixels).to(dtype)).float().numpy()
    ours, theirs = (np.abs(answer - each.logits[:32]).mean() for answer in (run(model, pixels), cast))
    assert 0 < ours < theirs  # norms, fields and logits stay float32


def test_the_cpu_provider_has_no_bfloat16_products() -> None:
    """The day this fails, bfloat16 bundles can be served on CPUs and `runners` can say so."""
    model = chain(BF16, np.eye(4))
    assert not has_cpu_kernels(model)
    with pytest.raises(ExportError, match="Could not find an implementation for MatMul"):
        run(model, np.zeros((1, 4), np.float32))


def test_a_float32_model_has_nothing_to_round(each: Zoo) -> None:
    assert list(emulated(each.model).graph.node) == list(each.model.graph.node)
