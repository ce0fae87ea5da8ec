"""How `LatentMemoryRouting` runs on a GPU: which kernels, tiles, splits and workspace for which sizes, and `run`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaussport.plugins.kernels.launch import Argument, Buffer, Constant, Launch, Plan, execute
from gaussport.plugins.kernels.tiling import cover, tiles
from gaussport.plugins.kernels.torch_buffers import TRITON_NAMES, contiguous, workspaces
from gaussport.plugins.latent_memory_routing import triton_kernel
from gaussport.plugins.latent_memory_routing.schema import OPERATOR

WHOLE_TOKENS = 512
"""A sequence of at most this many tokens is routed by one program per head; longer ones are split."""

SPLIT_TOKENS = 256
"""Tokens of one split: few enough that one image of 4,096 tokens and 6 heads fills 96 multiprocessors."""

MIXTURE_LIMIT = 8192
"""Most that K·(dr + 32) may be, K and dr rounded up to a power of two ≥ 16, and dr no more than 128: 64 components of 64 or
128 of 32. A program holds its head's mixture and a memory on chip; within this limit they fit the 99 kB of shared
memory that every GPU has."""

WIDEST_ROUTING = 128

LARGE_MIXTURE = 1024
"""Above this many numbers K·dr, rounded likewise, a program takes fewer tokens at a step."""

SCORES = {"fp32": "ieee", "fp16": "tf32x3", "bf16": "tf32x3"}
"""How scores are multiplied: three TF32 products keep about 21 of float32's 24 bits and run on the tensor cores."""

PRODUCTS = {"fp32": "ieee", "fp16": "tf32", "bf16": "tf32"}
"""How the write, the read and the chunk affinity are multiplied; TF32 has float16's precision and float32's range."""

COMBINE_BLOCK = 256


@dataclass(frozen=True)
class RoutingSizes:
    """Letters of the schema."""

    N: int
    P: int
    K: int
    dr: int
    dv: int
    masked: bool = False
    causal: bool = False


@dataclass(frozen=True)
class Types:
    """Triton's names of the dtypes of the operands and of the key mask, which may differ."""

    operands: str
    key_mask: str | None = None


@dataclass(frozen=True)
class Step:
    """How much of a sequence one program takes at a time."""

    tokens: int
    warps: int


_STEPS = {
    # (causal, large mixture, float32)
    (False, False, False): Step(tokens=64, warps=4),
    (False, False, True): Step(tokens=32, warps=4),
    (False, True, False): Step(tokens=16, warps=4),
    (False, True, True): Step(tokens=32, warps=8),
    (True, False, False): Step(tokens=32, warps=4),
    (True, False, True): Step(tokens=16, warps=8),
    (True, True, False): Step(tokens=16, warps=8),
    (True, True, True): Step(tokens=16, warps=8),
}
"""Chosen so that nothing spills (docs/kernels.md says where something does): float32 products run outside the tensor
cores and hold their operands in registers, and causal steps keep two Γ, an affinity and a memory alive at once."""


def _step(sizes: RoutingSizes, types: Types) -> Step:
    large = cover(sizes.K) * cover(sizes.dr) > LARGE_MIXTURE
    return _STEPS[sizes.causal, large, types.operands == "fp32"]


def plan(sizes: RoutingSizes, types: Types, epsilon: float = 1e-6, *, split_tokens: int | None = None) -> Plan:
    """The launches for one image's sizes.

    Args:
        split_tokens: tokens of one split, rounded up to whole steps; None chooses.
    """
    if split_tokens is None:
        split_tokens = sizes.N if sizes.N <= WHOLE_TOKENS else SPLIT_TOKENS
    step = _step(sizes, types)
    split_tokens = tiles(split_tokens, step.tokens) * step.tokens
    splits = tiles(sizes.N, split_tokens)
    launching = _Launching(sizes, types, epsilon, step, split_tokens)
    if splits == 1:
        return Plan((launching.causal(carried=False) if sizes.causal else launching.fused(),))
    read = launching.causal(carried=True) if sizes.causal else launching.read()
    slots = splits * sizes.P * sizes.K
    workspace = {"memory": (slots * sizes.dv, "fp32"), "mass": (slots, "fp32")}
    return Plan((launching.write(), launching.combine(), read), workspace)


def refusal(K: int, dr: int, dtype: torch.dtype) -> str | None:
    """Why the kernels cannot serve these operands, or None when they can."""
    if dtype not in TRITON_NAMES:
        return f"{OPERATOR.name}: the GPU kernels take float32, float16 or bfloat16, not {dtype}"
    if cover(K) * (cover(dr) + 32) > MIXTURE_LIMIT or dr > WIDEST_ROUTING:
        return (
            f"{OPERATOR.name}: K = {K} components of dr = {dr} are more than the GPU kernels hold on chip: "
            f"K·(dr + 32), both rounded up to a power of two, may be {MIXTURE_LIMIT}, and dr {WIDEST_ROUTING}"
        )
    return None


def run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_prior: Tensor,
    key_mask: Tensor | None = None,
    epsilon: float = 1e-6,
    causal: bool = False,
) -> Tensor:
    """The operator on a GPU (or in Triton's interpreter); same contract as the torch operator, operands already checked."""
    return run_plan(query, key, value, mean, variance, log_prior, key_mask, epsilon, causal)


def run_plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    variance: Tensor,
    log_prior: Tensor,
    key_mask: Tensor | None = None,
    epsilon: float = 1e-6,
    causal: bool = False,
    *,
    split_tokens: int | None = None,
) -> Tensor:
    """`run` with the choice that it makes by itself left to the caller; see `plan`."""
    operands = [query, key, value, mean, variance, log_prior]
    bound = OPERATOR.bind([*(tensor.shape for tensor in operands), None if key_mask is None else key_mask.shape])
    B, N, P, K, dr, dv = (bound[letter] for letter in ("B", "N", "P", "K", "dr", "dv"))
    sizes = RoutingSizes(N, P, K, dr, dv, masked=key_mask is not None, causal=causal)
    complaint = refusal(K, dr, value.dtype)
    if complaint is not None:
        raise ValueError(complaint)
    types = Types(TRITON_NAMES[value.dtype], key_mask=None if key_mask is None else "fp32")
    chosen = plan(sizes, types, epsilon, split_tokens=split_tokens)
    output = torch.empty_like(value, memory_format=torch.contiguous_format)
    buffers = contiguous(query=query, key=key, value=value, mean=mean, variance=variance, log_prior=log_prior)
    if key_mask is not None:
        buffers["key_mask"] = key_mask.to(torch.float32).contiguous()
    execute(chosen, B, {**buffers, "output": output, **workspaces(chosen, B, value.device)})
    return output


@dataclass(frozen=True)
class _Launching:
    """The launches of one plan, which share sizes, tiles and names of buffers."""

    sizes: RoutingSizes
    types: Types
    epsilon: float
    step: Step
    split_tokens: int

    def fused(self) -> Launch:
        names = ("query", "key", "value", "mean", "variance", "log_prior", "key_mask", "output", "epsilon", "N", "P", "K")
        constants = {**self._constants(), "MASKED": self.sizes.masked}
        return self._launch(triton_kernel.route_fused, 1, names, constants)

    def write(self) -> Launch:
        names = ("key", "value", "mean", "variance", "log_prior", "key_mask", "memory", "mass", "N", "P", "K",
                 "tokens_per_split")  # fmt: skip
        constants = {**self._constants(), "MASKED": self.sizes.masked}
        return self._launch(triton_kernel.route_write, self._splits, names, constants)

    def combine(self) -> Launch:
        slots = self.sizes.P * self.sizes.K
        return Launch(
            kernel=triton_kernel.route_combine,
            programs_per_image=tiles(slots * (self.sizes.dv + 1), COMBINE_BLOCK),
            arguments={name: self._argument(name) for name in ("memory", "mass", "S")} | {"slots": slots},
            constants={"DV": self.sizes.dv, "CAUSAL": self.sizes.causal, "BLOCK": COMBINE_BLOCK},
        )

    def read(self) -> Launch:
        names = ("query", "mean", "variance", "log_prior", "memory", "mass", "output", "epsilon", "N", "P", "K", "S")
        chunks = tiles(self.sizes.N, self.step.tokens)
        return self._launch(triton_kernel.route_read, chunks, names, self._constants())

    def causal(self, carried: bool) -> Launch:
        names = ("query", "key", "value", "mean", "variance", "log_prior", "key_mask", "memory", "mass", "output",
                 "epsilon", "N", "P", "K", "tokens_per_split")  # fmt: skip
        constants = {**self._constants(), "MASKED": self.sizes.masked, "CARRIED": carried}
        unused = () if carried else ("memory", "mass")
        return self._launch(triton_kernel.route_causal, self._splits, names, constants, unused)

    @property
    def _value_tile(self) -> int:
        return min(cover(self.sizes.dv), 64 if self.sizes.K <= 64 else 32)

    @property
    def _splits(self) -> int:
        return tiles(self.sizes.N, self.split_tokens)

    def _launch(
        self,
        kernel: Any,
        per_head: int,
        names: tuple[str, ...],
        constants: dict[str, Constant],
        unused: tuple[str, ...] = (),
    ) -> Launch:
        value_tiles = tiles(self.sizes.dv, self._value_tile)
        if not self.sizes.masked:
            unused = (*unused, "key_mask")
        return Launch(
            kernel=kernel,
            programs_per_image=per_head * value_tiles * self.sizes.P,
            arguments={name: self._argument(name) for name in names if name not in unused},
            constants={**constants, **{name: None for name in unused if name in names}},
            num_warps=self.step.warps,
        )

    def _argument(self, name: str) -> Argument:
        numbers: dict[str, int | float] = {
            "N": self.sizes.N,
            "P": self.sizes.P,
            "K": self.sizes.K,
            "S": self._splits,
            "tokens_per_split": self.split_tokens,
            "epsilon": float(self.epsilon),
        }
        if name in numbers:
            return numbers[name]
        if name == "key_mask":
            return Buffer(name, str(self.types.key_mask))
        return Buffer(name, "fp32" if name in ("memory", "mass") else self.types.operands)

    def _constants(self) -> dict[str, Constant]:
        return {
            "DR": self.sizes.dr,
            "DV": self.sizes.dv,
            "BLOCK_N": self.step.tokens,
            "BLOCK_K": cover(self.sizes.K),
            "BLOCK_DR": cover(self.sizes.dr),
            "BLOCK_DV": self._value_tile,
            "SCORES": SCORES[self.types.operands],
            "PRODUCTS": PRODUCTS[self.types.operands],
        }
