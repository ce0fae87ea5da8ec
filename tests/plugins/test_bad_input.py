"""One fault, one sentence: eager, meta kernel and ONNX export refuse the same operands in the same words."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from gaussport.export.quiet import quiet_exporter
from gaussport.plugins.latent_memory_routing.torch_op import latent_memory_routing
from gaussport.plugins.onnx_registry import translation_table
from gaussport.plugins.separable_gaussian_filter.torch_op import separable_gaussian_filter

Operands = Callable[..., tuple[Tensor, ...]]
Operator = Callable[..., Tensor]


class Module(torch.nn.Module):
    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, *operands: Tensor) -> Tensor:
        return self.operator(*operands)


def eager(operator: Operator, operands: Sequence[Tensor]) -> None:
    operator(*operands)


def meta(operator: Operator, operands: Sequence[Tensor]) -> None:
    operator(*(operand.to("meta") for operand in operands))


def onnx_export(operator: Operator, operands: Sequence[Tensor]) -> None:
    """torch's exporter wraps what it meets; `gaussport export` prints the innermost cause."""
    try:
        module = Module(operator).eval()
        table = translation_table()
        with quiet_exporter():
            torch.onnx.export(module, tuple(operands), dynamo=True, custom_translation_table=table, verbose=False)
    except torch.onnx.errors.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause from None


FAULTS = [
    pytest.param("filter", 3, lambda x: x[..., :1], r"weight has shape \[2, 3, 4, 2, 1\] .* = \[2, 3, 4, 2, 2\]", id="R"),
    pytest.param(
        "filter", 1, lambda x: x[0], r"offset has shape \[3, 4, 2, 2, 2\] but should be \[b, h, w, P, R,", id="rank"
    ),
    pytest.param("filter", 2, lambda x: x.double(), r"width is torch.float64 but value is torch.float32", id="filter dtype"),
    pytest.param("filter", 0, lambda x: x[:0], r"value has shape \[0, 3, 4, 2, 2\]; no axis may be empty", id="empty"),
    pytest.param("routing", 4, lambda x: x[:, 1:], r"variance has shape \[2, 6, 3\] .* = \[2, 7, 3\]", id="components"),
    pytest.param("routing", 3, lambda x: x.half(), r"mean is torch.float16 but query is torch.float32", id="routing dtype"),
    pytest.param("routing", 0, lambda x: x[:0], r"query has shape \[0, 5, 2, 3\]; no axis may be empty", id="empty routing"),
]


@pytest.mark.parametrize("attempt", [eager, meta, onnx_export])
@pytest.mark.parametrize(("name", "position", "change", "words"), FAULTS)
def test_misfit_is_refused_alike(
    filter_operands: Operands,
    routing_operands: Operands,
    attempt: Callable[[Operator, Sequence[Tensor]], None],
    name: str,
    position: int,
    change: Callable[[Tensor], Tensor],
    words: str,
) -> None:
    if name == "filter":
        operator, operands = separable_gaussian_filter, list(filter_operands(2, 3, 4, 2, 2, 2, dtype=torch.float32))
    else:
        operator, operands = latent_memory_routing, list(routing_operands(2, 5, 2, 7, 3, 4, dtype=torch.float32))
    operands[position] = change(operands[position])
    with pytest.raises(ValueError, match=words):
        attempt(operator, operands)


def test_the_onnx_export_takes_operands_that_fit(filter_operands: Operands) -> None:
    onnx_export(separable_gaussian_filter, filter_operands(2, 3, 4, 2, 2, 2, dtype=torch.float32))
