"""Other people's names and layouts for the parameters of `Classifier`, made ours: the same numbers, in another order.

Known: timm's and Hugging Face's words for the parts of a vision transformer, patch embeddings as convolutions, fused
q, k, v, parameters kept head by head, position embeddings with their grid, and the transposed kernels of Flax.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isqrt

import torch
from torch import Tensor

from gaussport.errors import CheckpointError

# One word a part; each pattern is tried on every name, in this order.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"^(?:encoder\.|transformer\.|trunk\.)?(?:blocks|layers|layer|block|encoderblock)[._](\d+)\.", r"blocks.\1."),
    (r"^(blocks\.\d+)\.(?:attention|self_attn|self_attention|mixer)\.", r"\1.attn."),
    (r"^(blocks\.\d+)\.(?:ln|norm|layernorm|layer_norm)_?([12])\.", r"\1.norm\2."),
    (r"^(blocks\.\d+)\.(?:mlp|ffn|feed_forward)(?:\.|_)(?:fc1|lin1|linear1|Dense_0|layers[._]0|0)\.", r"\1.mlp.0."),
    (r"^(blocks\.\d+)\.(?:mlp|ffn|feed_forward)(?:\.|_)(?:fc2|lin2|linear2|Dense_1|layers[._]2|2)\.", r"\1.mlp.2."),
    (r"\.attn\.(.*)\b(?:q_proj|W_Q|to_q|wq|query)\.", r".attn.\1q."),
    (r"\.attn\.(.*)\b(?:k_proj|W_K|to_k|wk|key)\.", r".attn.\1k."),
    (r"\.attn\.(.*)\b(?:v_proj|W_V|to_v|wv|value)\.", r".attn.\1v."),
    (r"\.attn\.(.*)\b(?:out_proj|o_proj|W_O|to_out|wo|proj)\.", r".attn.\1out."),
    (r"^(?:patch_embed\.(?:proj|projection)|patch_embedding|conv_proj|to_patch_embedding)\.", "patch_embed."),
    (r"^(?:pos_embedding|pos_emb|position_embeddings?|pos_embed)(?:\.weight)?$", "pos_embed"),
    (r"^(?:fc_norm|norm_f|ln_f|final_norm|encoder_norm|layernorm)\.", "norm."),
    (r"^(?:classifier|fc|head\.fc)\.", "head."),
)
_PER_HEAD = re.compile(r"^(blocks\.\d+\.attn)\.(?:heads|head)[._](\d+)\.(.+)$")


@dataclass(frozen=True)
class Laid:
    """Tensors by `Classifier`'s names and in its layout, what was changed in words, and the sizes that only the other
    layout tells: `patch`, `channels`, `grid`."""

    tensors: dict[str, Tensor]
    changes: tuple[str, ...] = ()
    sizes: Mapping[str, object] = field(default_factory=dict)


def laid_out(tensors: Mapping[str, Tensor], flax: bool, source: str) -> Laid:
    """Make them ours. What is ours already stays as it is, and what is nobody's that we know stays too.

    Raises:
        CheckpointError: two tensors get one name, or the heads of a layer do not fit together.
    """
    changes: list[str] = []
    sizes: dict[str, object] = {}
    found = dict(tensors)
    if flax:
        found = {_flax_name(name): _flax_layout(name, tensor) for name, tensor in found.items()}
        changes.append("Flax kernels transposed")
    found = _reworded(found, changes, source)
    found = _heads_together(found, changes, source)
    found = _unfused(found, changes)
    _flatten_patches(found, changes, sizes)
    _flatten_positions(found, changes, sizes)
    return Laid(found, tuple(changes), sizes)


def _flax_name(name: str) -> str:
    parts = name.split(".")
    if parts[-1] == "value" and len(parts) > 1:  # the state of an NNX module wraps every leaf
        parts.pop()
    parts[-1] = {"kernel": "weight", "scale": "weight", "embedding": "weight"}.get(parts[-1], parts[-1])
    return ".".join(parts)


def _flax_layout(name: str, tensor: Tensor) -> Tensor:
    """Kernels are [in, out], convolutions [row, column, in, out]; an attention's may keep [in, head, width] apart."""
    if name.removesuffix(".value").rpartition(".")[2] != "kernel":
        return tensor
    if tensor.dim() == 4:
        return tensor.permute(3, 2, 0, 1)
    if tensor.dim() == 3:
        gathers = bool(re.search(r"\b(?:out|out_proj|W_O|wo|proj)\.kernel", name))
        tensor = tensor.flatten(0, 1) if gathers else tensor.flatten(1)
    return tensor.T if tensor.dim() == 2 else tensor


def _reworded(tensors: dict[str, Tensor], changes: list[str], source: str) -> dict[str, Tensor]:
    origins: dict[str, str] = {}
    for name in tensors:
        new = name
        for pattern, replacement in _WORDS:
            new = re.sub(pattern, replacement, new)
        if origins.setdefault(new, name) != name:
            raise CheckpointError(f"{source} has both {origins[new]} and {name}, which are both {new} here: leave one out")
    changed = [(old, new) for new, old in origins.items() if old != new and _flax_name(old) != new]
    if changed:
        changes.append(f"{len(changed)} names read in other words ({changed[0][0]} as {changed[0][1]})")
    return {new: tensors[name] for new, name in origins.items()}


def _heads_together(tensors: dict[str, Tensor], changes: list[str], source: str) -> dict[str, Tensor]:
    """`attn.heads.3.q.weight [dr, dim]` and its like: rows one head after the other, mixtures on a new first axis."""
    groups: dict[str, dict[int, Tensor]] = {}
    rest = {}
    for name, tensor in tensors.items():
        match = _PER_HEAD.match(name)
        if match:
            groups.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = tensor
        else:
            rest[name] = tensor
    for name, heads in groups.items():
        if sorted(heads) != list(range(len(heads))) or len({tensor.shape for tensor in heads.values()}) != 1:
            raise CheckpointError(
                f"the heads of {name} in {source} are not numbered from 0 with one shape: store them whole"
            )
        ordered = [heads[index] for index in range(len(heads))]
        if name.endswith(".weight"):
            rest[name] = torch.cat(ordered, dim=1 if name.endswith(".out.weight") else 0)
        else:
            rest[name] = torch.stack(ordered)
    if groups:
        changes.append(f"{len(groups)} parameters put together from their heads")
    return rest


def _unfused(tensors: dict[str, Tensor], changes: list[str]) -> dict[str, Tensor]:
    """`attn.qkv.weight [3·dim, dim]` as q, k and v."""
    found = {}
    for name, tensor in tensors.items():
        if name.endswith(".attn.qkv.weight") and tensor.dim() == 2 and tensor.shape[0] == 3 * tensor.shape[1]:
            for letter, part in zip("qkv", tensor.chunk(3), strict=True):
                found[name.replace("qkv", letter)] = part
        else:
            found[name] = tensor
    if found.keys() != tensors.keys():
        changes.append("fused q, k, v taken apart")
    return found


def _flatten_patches(tensors: dict[str, Tensor], changes: list[str], sizes: dict[str, object]) -> None:
    """A convolution [dim, C, patch, patch] with a stride of its size is a Linear on patches flattened channels last."""
    kernel = tensors.get("patch_embed.weight")
    if kernel is not None and kernel.dim() == 4 and kernel.shape[2] == kernel.shape[3]:
        sizes.update(patch=int(kernel.shape[2]), channels=int(kernel.shape[1]))
        tensors["patch_embed.weight"] = kernel.permute(0, 2, 3, 1).flatten(1)
        changes.append("patch embedding: a convolution read as a linear layer")


def _flatten_positions(tensors: dict[str, Tensor], changes: list[str], sizes: dict[str, object]) -> None:
    """[N, dim], [1, H, W, dim] and [H, W, dim] as [1, N, dim]."""
    positions = tensors.get("pos_embed")
    if positions is None or (positions.dim() == 3 and positions.shape[0] == 1):
        return
    if positions.dim() == 4 and positions.shape[0] == 1:
        positions = positions[0]
    if positions.dim() == 3:
        sizes["grid"] = (int(positions.shape[0]), int(positions.shape[1]))
        positions = positions.flatten(0, 1)
    if positions.dim() == 2:
        tensors["pos_embed"] = positions.unsqueeze(0)
        changes.append("position embedding: reshaped to [1, N, dim]")


def patch_of(numbers: int) -> Iterator[tuple[int, int]]:
    """(patch, channels) for which patch·patch·channels is `numbers`, of grey and of coloured pictures."""
    for channels in (1, 3):
        if numbers % channels == 0 and isqrt(numbers // channels) ** 2 == numbers // channels:
            yield isqrt(numbers // channels), channels
