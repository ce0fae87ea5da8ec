"""Where to start: values that may be a Gaussian filter or responsibilities, by what stands in their exponent."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import onnx_ir as ir

from gaussport.export.fusion.indices import ONE, Axis, Index, Splits, UnreadableError, fresh
from gaussport.export.fusion.notation import Coordinate, Leaf, Terms
from gaussport.export.fusion.reading import READINGS, Axes, Reader, named, read_stable
from gaussport.export.fusion.sampling import Samples

_SMALLEST_SIDE = 3  # every pair of numbers lies on a line

LAYOUTS = frozenset({"Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Dropout"})


class Kind(Enum):
    FILTER = "a Gaussian filter"
    TABLE = "a table that may hold Gaussian filters"
    ROUTING = "responsibilities"


@dataclass(frozen=True, eq=False)
class Anchor:
    """A value made from an exponent `score`, or a constant table without one. `axis` is what a softmax normalises over;
    None where an exponential is normalised later or never."""

    value: ir.Value
    score: ir.Value | None
    axis: int | None
    kind: Kind
    fault: str = ""
    """Why no rule will take it, where that is plain already."""

    @property
    def name(self) -> str:
        producer = self.value.producer()
        return f"the table {self.value.name}" if producer is None else named(producer)


def find_anchors(graph: ir.Graph, samples: Samples) -> dict[ir.Value, Anchor]:
    """Every anchor of a graph, in its order."""
    anchors: dict[ir.Value, Anchor] = {}
    for node in graph:
        moving = [value for value in node.outputs if samples.constant(value) is None]
        if not moving:
            continue
        for value, score, axis in _exponentials(node, samples):
            kind, fault = _classified(value, score, axis, samples)
            if kind is not None:
                anchors[value] = Anchor(value, score, axis, kind, fault)
        for source in node.inputs if node.op_type in READINGS else ():
            if source is not None and _is_table(samples, source):
                anchors.setdefault(source, Anchor(source, None, None, Kind.TABLE))
    return anchors


def _exponentials(node: ir.Node, samples: Samples) -> Iterator[tuple[ir.Value, ir.Value, int | None]]:
    """The value, its exponent, and the axis over which it is normalised by this very node, if it is."""
    source = node.inputs[0] if node.inputs else None
    if source is None or node.domain not in ("", "ai.onnx"):
        return
    if node.op_type == "Softmax":
        yield node.outputs[0], source, int(node.attributes["axis"].value) if "axis" in node.attributes else -1
    elif node.op_type == "Exp":
        before = source.producer()
        if before is not None and before.op_type == "LogSoftmax" and before.inputs[0] is not None:
            axis = int(before.attributes["axis"].value) if "axis" in before.attributes else -1
            yield node.outputs[0], before.inputs[0], axis
        elif before is not None and before.op_type == "Sub" and (summed := _log_sum_axis(before, samples)) is not None:
            assert before.inputs[0] is not None
            yield node.outputs[0], before.inputs[0], summed
        else:
            yield node.outputs[0], source, None


def _log_sum_axis(difference: ir.Node, samples: Samples) -> int | None:
    """The axis of a score less its own log-sum-exp, which an exponential of it then sums to one over."""
    score, lesser = difference.inputs
    node = None if lesser is None else lesser.producer()
    while node is not None and node.op_type in LAYOUTS:
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    if node is None or node.op_type != "ReduceLogSumExp" or node.inputs[0] is not score:
        return None
    if "axes" in node.attributes:
        axes = list(node.attributes["axes"].value)
    else:
        constant = samples.constant(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
        axes = [] if constant is None else [int(axis) for axis in constant]
    return int(axes[0]) if len(axes) == 1 else None


def _is_table(samples: Samples, value: ir.Value) -> bool:
    table = samples.constant(value)
    if table is None or table.dtype.kind != "f" or table.ndim < 2 or max(table.shape, default=0) < 3:
        return False
    numbers = table.astype(np.float64)
    return bool(numbers.min() >= 0 and np.ptp(numbers) > 0)


def _classified(value: ir.Value, score: ir.Value, axis: int | None, samples: Samples) -> tuple[Kind | None, str]:
    sizes = samples.shape(value)
    if sizes is None:
        return None, ""
    axes = tuple(fresh(size) for size in sizes)
    chosen = range(len(sizes)) if axis is None else [axis % len(sizes)]
    for at in chosen:
        if sizes[at] == ONE or not axes[at][0].fixed:
            continue
        if _reads_as_mixture(score, axes, at, samples):
            return Kind.ROUTING, ""
        one_feature = _reads_as_mixture(score, axes, at, samples, features=False)
        try:
            splits = Splits()
            reader, terms = read_score(score, axes, axes[at], samples, splits)
        except UnreadableError:
            continue
        if one_feature and not squares(terms):
            return Kind.ROUTING, ""
        if not squares(terms) or axes[at][0].size[0] < _SMALLEST_SIDE:
            continue
        fault = "" if axis is None else not_one_filter(terms, splits.resolve(axes[at]))
        return Kind.FILTER, fault or (reader.faults[0] if reader.faults else "")
    return None, ""


def read_score(score: ir.Value, axes: Axes, over: Axis, samples: Samples, splits: Splits) -> tuple[Reader, Terms]:
    """An exponent as a polynomial in the coordinates of `over`; what does not vary along it is a leaf."""

    def make() -> tuple[Reader, Terms]:
        def look(value: ir.Value, own: Axes) -> bool:
            cells = splits.resolve(over)
            return any(index in cells for axis in own for index in axis) or is_plain(value, samples)

        reader = Reader(samples, splits, look, coordinates=over, opaque=True)
        return reader, reader.read(score, axes)

    return read_stable(make, splits)


def is_plain(value: ir.Value, samples: Samples) -> bool:
    """Whether a value is another one moved, scaled, squared or inverted: worth a look behind it."""
    node = value.producer()
    if node is None:
        return False
    if node.op_type in ("Mul", "Div"):
        return node.inputs[0] is node.inputs[1] or any(_is_number(v, samples) for v in node.inputs)
    if node.op_type == "Pow":
        return _is_number(node.inputs[1], samples, 2.0)
    return node.op_type in LAYOUTS or node.op_type in ("Neg", "Reciprocal")


def _is_number(value: ir.Value | None, samples: Samples, wanted: float | None = None) -> bool:
    constant = None if value is None else samples.constant(value)
    return constant is not None and constant.size == 1 and (wanted is None or float(constant.reshape(())) == wanted)


def squares(terms: Terms) -> set[Index]:
    """Indices whose coordinate occurs squared, or times another's, and that nothing else in the exponent varies along."""
    found: set[Index] = set()
    other: set[Index] = set()
    for term in terms:
        powers = {factor.index: power for factor, power in term.factors if isinstance(factor, Coordinate)}
        if sum(powers.values()) == 2 and not term.bound:  # a sum over features is no distance
            found.update(powers)
        other.update(*(factor.indices for factor, _ in term.factors if not isinstance(factor, Coordinate)))
    return found - other


def not_one_filter(terms: Terms, over: Iterable[Index]) -> str:
    """Why an exponent that is normalised over these indices is no 1-D filter of one atom, or nothing."""
    if any(sum(isinstance(factor, Coordinate) for factor, _ in term.factors) == 2 for term in terms):
        return "its exponent multiplies row by column, a Gaussian that is not separable"
    cells = squares(terms)
    if len(cells) > 1:
        return "it is normalised over rows and columns together, the operator's filters each by itself"
    if set(over) - cells:
        return "it is normalised over atoms and cells together, the operator's filters over the cells of each atom"
    return ""


def _reads_as_mixture(score: ir.Value, axes: Axes, at: int, samples: Samples, features: bool = True) -> bool:
    """Whether the exponent is, for each index of the axis, a quadratic of features that do not vary along it: summed over
    `features`, or of a single one."""
    try:
        terms = read_mixture_score(score, axes, axes[at], samples, Splits())[1]
    except UnreadableError:
        return False
    components = set(axes[at])
    squared = [term for term in terms if sum(power for factor, power in term.factors if isinstance(factor, Leaf)) == 2]
    return any(bool(term.bound) == features and components & set(term.scale.indices) for term in squared) and all(
        not components & set().union(*(factor.indices for factor, _ in term.factors)) for term in squared
    )


def read_mixture_score(score: ir.Value, axes: Axes, over: Axis, samples: Samples, splits: Splits) -> tuple[Reader, Terms]:
    """An exponent with its constants as numbers; tokens' features, which do not vary along `over`, are leaves."""

    def make() -> tuple[Reader, Terms]:
        def look(value: ir.Value, own: Axes) -> bool:
            components = splits.resolve(over)
            return any(index in components for axis in own for index in axis) or is_plain(value, samples)

        reader = Reader(samples, splits, look, numbers=True)
        return reader, reader.read(score, axes)

    return read_stable(make, splits)
