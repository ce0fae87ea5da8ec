"""`causal_memory_product` in standard operators: `memory_product`'s scan. Its chunk is no longer than there are tokens, so
that a stream that is read token by token pays for one."""

from typing import Any

from onnxscript import opset18

from gaussport.plugins.latent_memory_routing.memory_product import CHUNK

op: Any = opset18  # the one that torch's own translations are written in; the types of its stubs take no mixed inputs

_CHUNK_AXIS = 2


def write_causal_product(read: Any, write: Any, value: Any) -> Any:
    """The nodes of a call, for torch's exporter: read, write [B, N, P, K] and value [B, N, P, D] → [B, N, P, D]."""
    tokens = op.Shape(read, start=1, end=2)
    chunk = op.Min(tokens, op.Constant(value_ints=[CHUNK]))
    missing = op.Mod(op.Neg(tokens), chunk)
    padding = op.Concat(op.Constant(value_ints=[0] * 6), missing, op.Constant(value_ints=[0]), axis=0)
    reads, writes, values = (_chunks(x, chunk, padding) for x in (read, write, value))

    written = op.Transpose(writes, perm=[0, 1, 2, 4, 3])  # [B, P, chunks, K, chunk]
    before = op.CumSum(op.MatMul(written, values), op.Constant(value_int=_CHUNK_AXIS), exclusive=1)
    affinity = op.Trilu(op.MatMul(reads, written), upper=0)
    product = op.Add(op.MatMul(reads, before), op.MatMul(affinity, values))

    width = op.Shape(value, start=3, end=4)
    joined = op.Reshape(product, op.Concat(op.Constant(value_ints=[0, 0, -1]), width, axis=0))
    cut = op.Slice(joined, op.Constant(value_ints=[0]), tokens, op.Constant(value_ints=[2]))
    return op.Transpose(cut, perm=[0, 2, 1, 3])


def _chunks(x: Any, chunk: Any, padding: Any) -> Any:
    """[B, N, P, C] → [B, P, ⌈N / chunk⌉, chunk, C], padded with zeros at the end."""
    padded = op.Pad(op.Transpose(x, perm=[0, 2, 1, 3]), padding)
    shape = op.Concat(op.Constant(value_ints=[0, 0, -1]), chunk, op.Shape(x, start=3, end=4), axis=0)
    return op.Reshape(padded, shape)
