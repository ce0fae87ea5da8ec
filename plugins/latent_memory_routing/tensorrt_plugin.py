"""The plans that a TensorRT plugin of `LatentMemoryRouting` may choose from."""

from collections.abc import Mapping

from gaussport.errors import ExportError
from gaussport.plugins.kernels.launch import Plan
from gaussport.plugins.kernels.torch_buffers import TORCH_DTYPES
from gaussport.plugins.latent_memory_routing.triton_launch import RoutingSizes, Types, plan, refusal

SHORT_SPLIT = 64
"""Tokens of one split in the plan that spreads a short sequence over more programs."""


def tactics(
    sizes: Mapping[str, int],
    types: Mapping[str, str],
    attributes: Mapping[str, int | float],
    shared_limit_bytes: int,
) -> dict[str, Plan]:
    """Plans by name, the one to take without timing first.

    Args:
        sizes: of every letter of the schema.
        types: Triton's name of each operand's dtype; a key mask that is not given has none.
        attributes: `epsilon` and `causal`.
        shared_limit_bytes: not asked; every plan fits every GPU.

    Raises:
        ExportError: the mixture is larger than the kernels hold.
    """
    complaint = refusal(sizes["K"], sizes["dr"], TORCH_DTYPES[types["value"]])
    if complaint is not None:
        raise ExportError(complaint)
    N, P, K, dr, dv = (sizes[letter] for letter in ("N", "P", "K", "dr", "dv"))
    mask = types.get("key_mask")
    routing = RoutingSizes(N, P, K, dr, dv, masked=mask is not None, causal=bool(attributes["causal"]))
    given, epsilon = Types(types["value"], mask), float(attributes["epsilon"])
    chosen = plan(routing, given, epsilon)
    if len(chosen.launches) > 1:
        return {"split": chosen}
    short = plan(routing, given, epsilon, split_tokens=SHORT_SPLIT)
    return {"whole": chosen} if len(short.launches) == 1 else {"whole": chosen, "short splits": short}
