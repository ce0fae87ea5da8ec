"""Both zoo models once more, in plain numpy and float64, from their safetensors files: nothing of ours runs here.

The formulas are those of the operators' contract (docs/operators.md); the file format is safetensors' own.
"""

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PATCH, GRID, HEADS = 4, 7, 4
MAX_OFFSET, SIGMA_FLOOR, VARIANCE_FLOOR = 4.0, 0.25, 1e-4
_erf = np.vectorize(math.erf)


def read_safetensors(path: Path) -> dict[str, Array]:
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32"
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[start:end], "<f4").reshape(entry["shape"]).astype(np.float64)
    return tensors


def layers_of(path: Path, pixels: NDArray[np.float32], depth: int) -> tuple[list[dict[str, Array]], Array]:
    """What the attention of the first `depth` layers looks at for pixels [1, 28, 28], with its values and the operator's
    output; and the logits of a classifier of so many layers."""
    w = read_safetensors(path)
    # [row, in-row, column, in-column] → tokens of 16 pixels, row-major
    x = pixels[0].astype(np.float64).reshape(GRID, PATCH, GRID, PATCH).transpose(0, 2, 1, 3).reshape(GRID**2, PATCH**2)
    x = _linear(w, "patch_embed", x) + w["pos_embed"][0]
    layers = []
    for number in range(depth):
        block = {name.removeprefix(f"blocks.{number}."): a for name, a in w.items() if name.startswith(f"blocks.{number}.")}
        attention = {name.removeprefix("attn."): a for name, a in block.items() if name.startswith("attn.")}
        looked = (_ssog if "raw_sigma" in attention else _gma)(attention, _norm(block, "norm1", x))
        layers.append(looked)
        x = x + looked["output"].reshape(GRID**2, -1) @ attention["out.weight"].T
        hidden = _linear(block, "mlp.0", _norm(block, "norm2", x))
        x = x + _linear(block, "mlp.2", hidden * (1 + _erf(hidden / math.sqrt(2))) / 2)
    return layers, _linear(w, "head", _norm(w, "norm", x).mean(0))


def _ssog(w: dict[str, Array], x: Array) -> dict[str, Array]:
    field = (GRID, GRID, *w["mu"].shape)
    sigma = (_softplus(w["raw_sigma"]) + 1e-4 + SIGMA_FLOOR) * np.sqrt(_softplus(w["raw_temperature"]) + 0.5)
    s_mu, s_sigma, s_lambda = (
        _softplus(w[name]) + 1e-4 for name in ("raw_mu_delta_scale", "raw_sigma_delta_scale", "raw_lambda_gate_scale")
    )
    offset = w["mu"] + s_mu * MAX_OFFSET * np.tanh(_linear(w, "mu_delta", x)).reshape(field)
    width = sigma * np.exp(s_sigma * np.tanh(_linear(w, "sigma_delta", x)).reshape(field))
    weight = _softmax(w["log_lambda"] + s_lambda * np.tanh(_linear(w, "lambda_gate", x)).reshape(field[:-1]))
    value = (x @ w["v.weight"].T).reshape(GRID, GRID, HEADS, -1)
    output = np.zeros_like(value)
    cells = np.arange(GRID)
    for i in range(GRID):
        for c in range(GRID):
            for p in range(HEADS):
                for r in range(offset.shape[3]):
                    col = _softmax(-(((c - cells) - offset[i, c, p, r, 1]) ** 2) / (2 * width[i, c, p, r, 1] ** 2))
                    for k in range(GRID):  # the intermediate token (i, k) steers the filter over rows
                        row = _softmax(-(((i - cells) - offset[i, k, p, r, 0]) ** 2) / (2 * width[i, k, p, r, 0] ** 2))
                        output[i, c, p] += weight[i, c, p, r] * col[k] * (row @ value[:, k, p])
    fixed = {"fixed_offset": w["mu"], "fixed_width": sigma, "fixed_weight": _softmax(w["log_lambda"])}
    gates = np.array([s_mu * MAX_OFFSET, s_sigma, s_lambda])
    return {"offset": offset, "width": width, "weight": weight, "value": value, "output": output, "gates": gates, **fixed}


def _gma(w: dict[str, Array], x: Array) -> dict[str, Array]:
    mean, variance = w["mu"], _softplus(w["omega"]) + VARIANCE_FLOOR
    log_prior = np.log(_softmax(w["alpha"]))
    gamma = {}
    for name in "qk":
        routed = (x @ w[f"{name}.weight"].T).reshape(len(x), HEADS, 1, -1)
        score = log_prior - (np.log(2 * math.pi * variance) + (routed - mean) ** 2 / variance).sum(-1) / 2
        gamma[name] = _softmax(score)
    value = (x @ w["v.weight"].T).reshape(len(x), HEADS, -1)
    mass = gamma["k"].sum(0)
    memory = np.einsum("npk,npd->pkd", gamma["k"], value)
    norm = np.einsum("npk,pk->np", gamma["q"], mass)
    output = np.einsum("npk,pkd->npd", gamma["q"], memory) / (norm[..., None] + 1e-6)
    return {
        "query_responsibility": gamma["q"],
        "key_responsibility": gamma["k"],
        "mass": mass[None],
        "mean": mean,
        "variance": variance,
        "log_prior": log_prior,
        "value": value,
        "output": output,
    }


def _linear(w: dict[str, Any], name: str, x: Array) -> Array:
    answer: Array = x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
    return answer


def _norm(w: dict[str, Array], name: str, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scaled: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0.0, x))


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    shares: Array = weights / weights.sum(-1, keepdims=True)
    return shares
