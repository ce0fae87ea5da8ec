"""What a rule is asked about, and what it answers when it matches."""

from dataclasses import dataclass

import onnx_ir as ir

from gaussport.export.fusion.anchors import Anchor
from gaussport.export.fusion.indices import Axis
from gaussport.export.fusion.notation import Terms
from gaussport.plugins import Operator


@dataclass(frozen=True)
class Candidate:
    """A value and what it is in index notation."""

    value: ir.Value
    axes: tuple[Axis, ...]
    terms: Terms
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operand:
    """One input of the operator: expressions laid out as axes; two are stacked along a new last axis.

    Axes along which nothing varies are of size 1. `full` asks for them at full size; `field` for an operand that is one for
    all tokens unless some operand of its kind varies by token."""

    parts: tuple[tuple[Terms, tuple[Axis, ...]], ...]
    field: bool = False


@dataclass(frozen=True)
class Match:
    """An operator in place of a value."""

    value: ir.Value
    axes: tuple[Axis, ...]
    operator: Operator
    operands: tuple[Operand, ...]
    layout: tuple[Axis, ...]
    """The axes of the operator's output."""
    anchors: tuple[Anchor, ...]
    noise: tuple[ir.Value, ...]
    """Values that may hold any numbers: a proof draws them at random."""
    attributes: tuple[tuple[str, float | int], ...] = ()
