"""read (writeᵀ value): the product at the heart of a latent memory, over all tokens or in causal order.

Causal order is scanned in chunks: inside a chunk by the masked chunk affinity, across chunks by the running memory. The
chunks of a block are computed at once, blocks one after another, so that what is between stays in the processor's cache
and does not grow with the sequence. Memory is O(N·(K + D) + block·chunk), and no Python loop runs over tokens or chunks.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from gaussport.plugins.operator import DOMAIN

CHUNK = 64  # tokens; at least K, so that the per-chunk states take no more room than the tokens themselves
BLOCK = 64 * CHUNK


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
    if read.shape[1] <= BLOCK:
        return _scanned(read, write, value)[0]
    so_far: Tensor | None = None
    outputs = []
    for blocks in zip(*(x.split(BLOCK, 1) for x in (read, write, value)), strict=True):  # its gradient is one concatenation
        output, so_far = _scanned(blocks[0], blocks[1], blocks[2], so_far)
        outputs.append(output)
    return torch.cat(outputs, 1)


def _scanned(read: Tensor, write: Tensor, value: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The causal product of a block's tokens, and the memory [B, P, 1, K, D] after them; `memory` is that before, if any."""
    tokens = read.shape[1]
    read, write, value = (_chunks(x) for x in (read, write, value))  # [B, P, chunks, CHUNK, ·]
    states = write.transpose(-1, -2) @ value  # what each chunk writes, [B, P, chunks, K, D]
    before = pad(states.cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))  # the memory as each chunk finds it
    if memory is not None:
        before = before + memory
    affinity = torch.tril(read @ write.transpose(-1, -2))  # [B, P, chunks, CHUNK, CHUNK]
    output = read @ before + affinity @ value
    return output.flatten(2, 3)[:, :, :tokens].transpose(1, 2), before[:, :, -1:] + states[:, :, -1:]


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
