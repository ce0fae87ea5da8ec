"""read (writeᵀ value): the product at the heart of a latent memory, over all tokens or in causal order.

Causal order is scanned in chunks: inside a chunk by the masked chunk affinity, across chunks by the running memory.
Memory is O(N·(chunk + K + D)) with one K×D state per chunk, and no Python loop runs over tokens.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from gaussport.plugins.operator import DOMAIN

CHUNK = 64  # tokens; at least K, so that the per-chunk states take no more room than the tokens themselves


def memory_product(read: Tensor, write: Tensor, value: Tensor, causal: bool, reverse: bool = False) -> Tensor:
    """Σ_j (read_i · write_j) value_j over all j, or over j ≤ i (causal), or over j ≥ i (causal and reverse).

    Args:
        read, write: [B, N, P, K].
        value: [B, N, P, D].

    Returns:
        [B, N, P, D].
    """
    if not causal:
        memory = torch.einsum("bnpk,bnpd->bpkd", write, value)
        return torch.einsum("bnpk,bpkd->bnpd", read, memory)
    if reverse:
        return memory_product(read.flip(1), write.flip(1), value.flip(1), causal=True).flip(1)
    tokens = read.shape[1]
    read, write, value = (_chunks(x) for x in (read, write, value))  # [B, P, chunks, CHUNK, ·]
    states = write.transpose(-1, -2) @ value  # what each chunk writes, [B, P, chunks, K, D]
    before = pad(states.cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))  # the memory as each chunk finds it
    affinity = torch.tril(read @ write.transpose(-1, -2))  # [B, P, chunks, CHUNK, CHUNK]
    output = read @ before + affinity @ value
    return output.flatten(2, 3)[:, :, :tokens].transpose(1, 2)


def _chunks(x: Tensor) -> Tensor:
    """[B, N, P, C] → [B, P, ⌈N / CHUNK⌉, CHUNK, C], padded with zeros at the end."""
    padded = pad(x.transpose(1, 2), (0, 0, 0, -x.shape[1] % CHUNK))
    return padded.view(*padded.shape[:2], -1, CHUNK, padded.shape[-1])


@torch.library.custom_op(f"{DOMAIN}::causal_memory_product", mutates_args=())
def causal_memory_product(read: Tensor, write: Tensor, value: Tensor) -> Tensor:
    """`memory_product` in causal order, for a tracer: one call whose result has the value's shape.

    Padding and cutting, traced with the number of tokens as a symbol, would take half the time of a trace, for torch proves
    at every step that the sizes agree. `onnx_memory_product` writes it in standard operators; it has no gradient.
    """
    return memory_product(read, write, value, causal=True).contiguous()


@causal_memory_product.register_fake
def _(read: Tensor, write: Tensor, value: Tensor) -> Tensor:
    return value.new_empty(value.shape)
