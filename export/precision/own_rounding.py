"""How far the rounding of a narrow format alone moves a module's answers, told from the module and not from its export.

The module runs in PyTorch with float32 arithmetic, and rounds where a narrow graph does: what linear layers, convolutions,
GELU and attention operators read and give, and the sums of the residual stream. The head, whose logits decide, does not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gaussport.export.evaluation import evaluating
from gaussport.plugins import DOMAIN

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_PRODUCTS = {"addmm", "mm", "bmm", "baddbmm", "linear", "convolution"}
_OTHERS = {"gelu", "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"}
_STREAM_AXES = 3  # [batch, tokens, width]: what is smaller is a bias or belongs to a field, which stay float32


@contextmanager
def rounding(module: nn.Module, inputs: tuple[Tensor, ...], precision: str) -> Iterator[None]:
    """Inside, what runs in PyTorch rounds as `module` in that precision does, which is run once to find its head."""
    counted = _Rounding(_DTYPES[precision], head=0)
    with evaluating(module), counted:
        module(*(tensor[:1] for tensor in inputs))
    with _Rounding(_DTYPES[precision], head=counted.products):
        yield


class _Rounding(TorchDispatchMode):
    """Rounds the operands and the result of each product but the `head`-th, the last of a run, and of what lies between."""

    def __init__(self, dtype: torch.dtype, head: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype, self._head, self.products = dtype, head, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._opname
        if name in _PRODUCTS:
            self.products += 1
            narrow = self.products != self._head
            if self.products == self._head:
                self.products = 0  # the next run of the module begins
        else:
            narrow = func.namespace == DOMAIN or name in _OTHERS or (name == "add" and _is_stream(args))
        if not narrow:
            return func(*args, **(kwargs or {}))
        return self._rounded(func(*map(self._rounded, args), **(kwargs or {})))

    def _rounded(self, value: Any) -> Any:
        """The numbers as the format shows them; those beyond it as they are, for such layers stay float32."""
        if not isinstance(value, Tensor) or value.dtype != torch.float32:
            return value
        shown = value.to(self._dtype).float()
        return torch.where(shown.isinf(), value, shown) if self._dtype == torch.float16 else shown


def _is_stream(args: tuple[Any, ...]) -> bool:
    """Whether two streams of the same shape are added."""
    return (
        len(args) > 1
        and all(isinstance(x, Tensor) and x.dim() >= _STREAM_AXES for x in args[:2])
        and (args[0].shape == args[1].shape)
    )
