"""The sequence classifier once more, in float64 and NumPy, from the tensors of its file and nothing of this project.

Written from the description of the model (docs/models.md) and of the operator, one token after another, as an oracle for the
shipped checkpoint: no padding, no chunks, no expanded squares, no matrix products over tokens.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = dict[str, Array]


def logits(weights: Weights, tokens: list[int], causal: bool, epsilon: float, floor: float, norm_epsilon: float) -> Array:
    """[classes] of one document, pooled by the mean over its tokens."""
    x = weights["token_embed.weight"][tokens]
    depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    for index in range(depth):
        block = {
            name.removeprefix(f"blocks.{index}."): w for name, w in weights.items() if name.startswith(f"blocks.{index}.")
        }
        x = x + _convolution(x, block["conv.weight"], block["conv.bias"], causal)
        x = x + _attention(_norm(x, block, "norm1", norm_epsilon), _under(block, "attn."), causal, epsilon, floor)
        hidden = _norm(x, block, "norm2", norm_epsilon) @ block["mlp.0.weight"].T + block["mlp.0.bias"]
        gelu = 0.5 * hidden * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
        x = x + gelu @ block["mlp.2.weight"].T + block["mlp.2.bias"]
    pooled = _norm(x, weights, "norm", norm_epsilon).mean(0)
    return np.asarray(weights["head.weight"] @ pooled + weights["head.bias"])


def _under(weights: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def _norm(x: Array, weights: Weights, name: str, epsilon: float) -> Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + epsilon) * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def _convolution(x: Array, kernel: Array, bias: Array, causal: bool) -> Array:
    """Each channel by its own kernel [dim, 1, width], which is not turned round; zeros beyond both ends."""
    width = kernel.shape[-1]
    before = width - 1 if causal else width // 2
    out = np.tile(bias, (len(x), 1))
    for i in range(len(x)):
        for tap in range(width):
            j = i + tap - before
            if 0 <= j < len(x):
                out[i] += kernel[:, 0, tap] * x[j]
    return out


def _attention(x: Array, weights: Weights, causal: bool, epsilon: float, floor: float) -> Array:
    """GMA: what each token writes by its key's responsibilities, read by each query's."""
    P, K, dr = weights["mu"].shape
    n = len(x)
    query, key = ((x @ weights[f"{name}.weight"].T).reshape(n, P, dr) for name in ("q", "k"))
    value = (x @ weights["v.weight"].T).reshape(n, P, -1)
    variance = np.log1p(np.exp(weights["omega"])) + floor
    prior = np.exp(weights["alpha"]) / np.exp(weights["alpha"]).sum(-1, keepdims=True)

    def shares(y: Array) -> Array:
        density = np.log(prior) - 0.5 * (np.log(2 * np.pi * variance) + (y[:, None] - weights["mu"]) ** 2 / variance).sum(-1)
        likely = np.exp(density - density.max(-1, keepdims=True))
        return np.asarray(likely / likely.sum(-1, keepdims=True))

    read, written = [shares(y) for y in query], [shares(y) for y in key]
    memory, mass = np.zeros((P, K, value.shape[-1])), np.zeros((P, K))
    mixed = np.empty_like(value)
    for i in range(n):
        memory += written[i][:, :, None] * value[i][:, None, :]
        mass += written[i]
        if causal:
            mixed[i] = _read(read[i], memory, mass, epsilon)
    if not causal:
        mixed = np.stack([_read(shares_of_one, memory, mass, epsilon) for shares_of_one in read])
    return np.asarray(mixed.reshape(n, -1) @ weights["out.weight"].T)


def _read(shares: Array, memory: Array, mass: Array, epsilon: float) -> Array:
    numerator = (shares[:, :, None] * memory).sum(1)
    return np.asarray(numerator / ((shares * mass).sum(-1) + epsilon)[:, None])
