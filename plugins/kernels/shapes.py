"""The sizes whose kernels are compiled and tabled: what the published and the zoo models launch, and larger grids."""

from collections.abc import Iterator
from dataclasses import dataclass

from gaussport.plugins.kernels.architectures import SHARED_LIMIT_BYTES
from gaussport.plugins.kernels.launch import Launch
from gaussport.plugins.latent_memory_routing.triton_launch import RoutingSizes, Types
from gaussport.plugins.latent_memory_routing.triton_launch import plan as routing_plan
from gaussport.plugins.separable_gaussian_filter.triton_launch import FilterSizes
from gaussport.plugins.separable_gaussian_filter.triton_launch import plan as filter_plan


@dataclass(frozen=True)
class TabledLaunch:
    """A launch and the words that say where it comes from."""

    model: str
    published: bool
    dtype: str
    launch: Launch


FILTERS = {
    "SSOG d256": FilterSizes(H=14, W=14, P=4, R=4, D=64, fixed=False, shared=False),
    "SSOG d384": FilterSizes(H=14, W=14, P=6, R=4, D=64, fixed=False, shared=False),
    "SSOG d384 fixed": FilterSizes(H=14, W=14, P=6, R=4, D=64, fixed=True, shared=True),
    "SSOG mnist": FilterSizes(H=7, W=7, P=4, R=4, D=16, fixed=False, shared=False),
    "SSOG d384, 32×32": FilterSizes(H=32, W=32, P=6, R=4, D=64, fixed=False, shared=False),
    "SSOG d384, 64×64": FilterSizes(H=64, W=64, P=6, R=4, D=64, fixed=False, shared=False),
}

ROUTINGS = {
    "GMA d384": RoutingSizes(N=196, P=6, K=32, dr=16, dv=64),
    "GMA d384 causal": RoutingSizes(N=196, P=6, K=32, dr=16, dv=64, causal=True),
    "GMA mnist": RoutingSizes(N=49, P=4, K=32, dr=16, dv=16),
    "GMA d384, 4,096 tokens": RoutingSizes(N=4096, P=6, K=32, dr=16, dv=64),
    "GMA d384, 4,096 causal": RoutingSizes(N=4096, P=6, K=32, dr=16, dv=64, causal=True),
    "GMA K = dr = 64, 4,096 tokens": RoutingSizes(N=4096, P=6, K=64, dr=64, dv=64),
    "GMA K = dr = 64, 4,096 causal": RoutingSizes(N=4096, P=6, K=64, dr=64, dv=64, causal=True),
}

PUBLISHED = ("SSOG d256", "SSOG d384", "SSOG d384 fixed", "GMA d384", "GMA d384 causal")
"""Models (SSOG's by its authors, GMA's ours at the same sizes) whose kernels must not spill on any architecture."""


def tabled_launches(architecture: int, dtypes: tuple[str, ...] = ("fp32", "fp16", "bf16")) -> Iterator[TabledLaunch]:
    """Every launch of every model above, as planned for one architecture."""
    limit = SHARED_LIMIT_BYTES[architecture]
    for dtype in dtypes:
        for model, filter_sizes in FILTERS.items():
            for launch in filter_plan(filter_sizes, dtype, shared_limit_bytes=limit).launches:
                yield TabledLaunch(model, model in PUBLISHED, dtype, launch)
        for model, routing_sizes in ROUTINGS.items():
            for launch in routing_plan(routing_sizes, Types(dtype)).launches:
                yield TabledLaunch(model, model in PUBLISHED, dtype, launch)
