"""The nodes that the plugin is driven with: published sizes with fewer heads (their kernels are the same), and odd ones.

Kernels are compiled in one process and interpreted in another, so a case is plain data, and its package goes by file.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gaussport.plugins.tensorrt.package import KernelPackage
from tests.tensorrt.replay import KernelFacts, facts_of, read_facts, write_facts

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """One node: an operator at one or more grids."""

    name: str
    operator: str
    dtype: str
    grids: tuple[Sizes, ...]
    attributes: Mapping[str, int | float] = field(default_factory=dict)
    fixed: bool = False
    mask_dtype: str | None = None
    every_tactic: bool = False
    architectures: tuple[int, ...] = (86,)
    portable: bool = False

    def shapes(self, grid: int, batch: int | None) -> list[tuple[int | None, ...]]:
        """The operands' shapes at one grid, for so many images (None: dynamic)."""
        s, B = self.grids[grid], batch
        if self.operator == "SeparableGaussianFilter":
            place = (1, 1, 1) if self.fixed else (B, s["H"], s["W"])
            atoms = (*place, s["P"], s["R"])
            return [(B, s["H"], s["W"], s["P"], s["D"]), (*atoms, 2), (*atoms, 2), atoms]
        tokens, mixture = (B, s["N"], s["P"]), (s["P"], s["K"], s["dr"])
        shapes = [(*tokens, s["dr"]), (*tokens, s["dr"]), (*tokens, s["dv"]), mixture, mixture, mixture[:2]]
        return shapes if self.mask_dtype is None else [*shapes, tokens[:2]]

    def dtypes(self) -> list[str]:
        """Of the operands, in order."""
        count = len(self.shapes(0, None))
        return [self.dtype] * count if self.mask_dtype is None else [*[self.dtype] * (count - 1), self.mask_dtype]


PUBLISHED_FILTER = {"H": 14, "W": 14, "P": 2, "R": 4, "D": 64}
PUBLISHED_ROUTING = {"N": 196, "P": 2, "K": 32, "dr": 16, "dv": 64}
ODD_GRIDS = ({"H": 9, "W": 5}, {"H": 6, "W": 11}, {"H": 2, "W": 17})
SHORT = {"N": 66, "P": 2, "K": 5, "dr": 6, "dv": 10}

CASES = {
    case.name: case
    for case in (
        Case("filter fp16", "SeparableGaussianFilter", "fp16", (PUBLISHED_FILTER,), every_tactic=True),
        Case("filter fp32", "SeparableGaussianFilter", "fp32", (PUBLISHED_FILTER,)),
        Case("filter bf16", "SeparableGaussianFilter", "bf16", (PUBLISHED_FILTER,)),
        Case("fixed filter fp16", "SeparableGaussianFilter", "fp16", (PUBLISHED_FILTER,), fixed=True),
        Case(
            "odd grids",
            "SeparableGaussianFilter",
            "fp32",
            tuple({**grid, "P": 2, "R": 2, "D": 7} for grid in ODD_GRIDS),
            every_tactic=True,
            portable=True,
        ),
        Case("routing fp16", "LatentMemoryRouting", "fp16", (PUBLISHED_ROUTING,), every_tactic=True),
        Case("routing fp32", "LatentMemoryRouting", "fp32", (PUBLISHED_ROUTING,)),
        Case("routing bf16", "LatentMemoryRouting", "bf16", (PUBLISHED_ROUTING,)),
        Case(
            "masked causal",
            "LatentMemoryRouting",
            "fp32",
            (SHORT,),
            {"causal": 1, "epsilon": 0.25},
            mask_dtype="fp32",
            every_tactic=True,
        ),
        Case("mask of booleans", "LatentMemoryRouting", "fp32", (SHORT,), {"epsilon": 1e-6}, mask_dtype="i1"),
    )
}


@dataclass(frozen=True)
class Prepared:
    """A case whose package is compiled: the node's attributes, and what its machine code was compiled from."""

    case: Case
    attributes: Mapping[str, str | int | float]
    facts: Mapping[str, KernelFacts]


def write_prepared(folder: Path, case: Case, attributes: Mapping[str, str | int | float], package: KernelPackage) -> None:
    (folder / f"{case.name}.attributes.json").write_text(json.dumps(dict(attributes)))
    write_facts(folder / f"{case.name}.facts.json", facts_of(package))


def read_prepared(folder: Path, name: str) -> Prepared:
    attributes = json.loads((folder / f"{name}.attributes.json").read_text())
    return Prepared(CASES[name], attributes, read_facts(folder / f"{name}.facts.json"))
