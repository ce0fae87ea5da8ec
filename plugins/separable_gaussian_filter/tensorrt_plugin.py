"""The plans that a TensorRT plugin of `SeparableGaussianFilter` may choose from."""

from collections.abc import Mapping

from gaussport.plugins.kernels.launch import Plan
from gaussport.plugins.separable_gaussian_filter.triton_launch import FilterSizes, plan


def tactics(
    sizes: Mapping[str, int],
    types: Mapping[str, str],
    attributes: Mapping[str, int | float],
    shared_limit_bytes: int,
) -> dict[str, Plan]:
    """Plans by name, the one to take without timing first.

    Args:
        sizes: of every letter of the schema.
        types: Triton's name of each operand's dtype.
        attributes: none.
        shared_limit_bytes: shared memory that one program may have.
    """
    H, W, P, R, D = (sizes[letter] for letter in "HWPRD")
    filter_sizes = FilterSizes(H, W, P, R, D, fixed=sizes["h"] * sizes["w"] == 1, shared=sizes["b"] == 1)
    chosen = plan(filter_sizes, types["value"], shared_limit_bytes=shared_limit_bytes)
    if len(chosen.launches) > 1:
        return {"two passes": chosen}
    return {"fused": chosen, "two passes": plan(filter_sizes, types["value"], fused=False)}
