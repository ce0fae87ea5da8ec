"""Reads a value of the graph in index notation, backwards from given axes, as far as it is asked to look."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from gaussport.export.fusion.indices import ONE, Axis, Size, Splits, UnreadableError, fresh
from gaussport.export.fusion.notation import Array, Leaf, Numbers, Term, Terms, UpTo, number, power_of, product, resolved
from gaussport.export.fusion.polynomial import as_polynomial
from gaussport.export.fusion.sampling import Samples

Axes = tuple[Axis, ...]


_MOST_VALUES = 250  # that one expression may look into; an attention takes fewer than a hundred


class Reader:
    """One expression being read: which values to look into, and how constants are written.

    `look` says whether to go on at a value; where it says no the value is a leaf. With `coordinates`, constants become
    polynomials in those indices where they are; without, constants stay leaves unless they are one number, or numbers when
    `numbers` is set. With `opaque`, what cannot be read is a leaf as well.
    """

    def __init__(
        self,
        samples: Samples,
        splits: Splits,
        look: Callable[[ir.Value, Axes], bool],
        *,
        coordinates: Axis = (),
        numbers: bool = False,
        opaque: bool = False,
    ) -> None:
        self.samples, self.splits = samples, splits
        self._look, self._over, self._numbers = look, coordinates, numbers
        self._opaque = opaque
        self._left = _MOST_VALUES
        self.faults: list[str] = []

    def read(self, value: ir.Value, axes: Axes) -> Terms:
        """The element of `value` at these indices.

        Raises:
            UnreadableError: a node on the way is none that index notation can express.
        """
        self._left -= 1
        if self._left < 0:
            raise UnreadableError(f"the expression that ends in {value.name} is too long")
        axes = tuple(self.splits.resolve(axis) for axis in axes)
        constant = self.samples.constant(value)
        if constant is not None and constant.dtype.kind in "fiub":
            return self._constant(value, constant.astype(np.float64), axes)
        node = value.producer()
        if node is None or not self._look(value, axes):
            return (Term.of(Leaf(value, axes)),)
        reading = READINGS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if reading is None and self._opaque:
            return (Term.of(Leaf(value, axes)),)
        if reading is None:
            raise UnreadableError(f"{named(node)} stands in between")
        return reading(self, node, axes)

    def operand(self, node: ir.Node, at: int, axes: Axes) -> Terms:
        """An operand that broadcasts to the axes of the result."""
        value = self.input(node, at)
        sizes = self.sizes(value)
        own = axes[len(axes) - len(sizes) :]
        return self.read(value, tuple(() if size == ONE else axis for size, axis in zip(sizes, own, strict=True)))

    def input(self, node: ir.Node, at: int) -> ir.Value:
        value = node.inputs[at] if at < len(node.inputs) else None
        if value is None:
            raise UnreadableError(f"{named(node)} lacks its input {at}")
        return value

    def sizes(self, value: ir.Value) -> tuple[Size, ...]:
        sizes = self.samples.shape(value)
        if sizes is None:
            raise UnreadableError(f"the shape of {value.name} depends on the batch")
        return sizes

    def integers(self, node: ir.Node, name: str, at: int) -> list[int] | None:
        """An attribute, or the constant input that took its place in a later opset."""
        attribute = node.attributes.get(name)
        if attribute is not None:
            return [int(number) for number in np.atleast_1d(attribute.value)]
        if at >= len(node.inputs) or node.inputs[at] is None:
            return None
        constant = self.samples.constant(self.input(node, at))
        if constant is None:
            raise UnreadableError(f"{named(node)} computes its {name}")
        return [int(number) for number in np.atleast_1d(constant)]

    def _constant(self, value: ir.Value, array: Array, axes: Axes) -> Terms:
        if array.size == 1:
            return (Term(number(float(array.reshape(())))),)
        if not self._over and not self._numbers:
            return (Term.of(Leaf(value, axes)),)
        indices = tuple(index for axis in axes for index in axis)
        numbers = Numbers(array.reshape([index.size[0] for index in indices]), indices)
        coordinates = self.splits.resolve(self._over)
        return as_polynomial(numbers, coordinates, self.splits) if coordinates else (Term(numbers),)


def named(node: ir.Node) -> str:
    """A node as people find it again: its type and its name, or that of its output."""
    return f"{node.op_type} {node.name or node.outputs[0].name}"


def _same(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return reader.read(reader.input(node, 0), axes)


def _cast(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    if not ir.DataType(node.attributes["to"].value).is_floating_point():
        raise UnreadableError(f"{named(node)} rounds")
    return _same(reader, node, axes)


def _transpose(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    order = reader.integers(node, "perm", 1) or list(reversed(range(len(axes))))
    return reader.read(reader.input(node, 0), tuple(axes[order.index(at)] for at in range(len(order))))


def _reshape(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    value = reader.input(node, 0)
    return reader.read(value, reader.splits.regroup(axes, reader.sizes(value)))


def _expand(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return reader.operand(node, 0, axes)


def _add(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return (*reader.operand(node, 0, axes), *reader.operand(node, 1, axes))


def _sub(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return (*reader.operand(node, 0, axes), *_negated(reader.operand(node, 1, axes)))


def _neg(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return _negated(_same(reader, node, axes))


def _negated(terms: Terms) -> Terms:
    return tuple(term.times(-1.0) for term in terms)


def _mul(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return product(reader.operand(node, 0, axes), reader.operand(node, 1, axes))


def _div(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return product(reader.operand(node, 0, axes), power_of(reader.operand(node, 1, axes), Fraction(-1)))


def _reciprocal(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return power_of(_same(reader, node, axes), Fraction(-1))


def _sqrt(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    return power_of(_same(reader, node, axes), Fraction(1, 2))


def _pow(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    exponent = reader.samples.constant(reader.input(node, 1))
    if exponent is None or exponent.size != 1 or float(exponent.reshape(())) != 2.0:
        raise UnreadableError(f"{named(node)} is no square")
    return product(reader.operand(node, 0, axes), reader.operand(node, 0, axes))


def _where(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    """Where(mask, x, 0) is mask · x; any other is no product."""
    otherwise = reader.samples.constant(reader.input(node, 2))
    if otherwise is None or np.any(otherwise != 0):
        reader.faults.append(f"{named(node)} puts other numbers where its mask says so")
        return reader.operand(node, 1, axes)
    return product(reader.operand(node, 0, axes), reader.operand(node, 1, axes))


def _bounded(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    reader.faults.append(f"{named(node)} bounds its values")
    return reader.operand(node, 0, axes)


def _trilu(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    diagonal = reader.integers(node, "k", 1) or [0]
    upper = reader.integers(node, "upper", 9) or [1]
    high, low = axes[-2], axes[-1]
    if diagonal != [0] or upper != [0] or len(high) != 1 or len(low) != 1:
        raise UnreadableError(f"{named(node)} is not the lower triangle with its diagonal")
    mask = (Term.of(UpTo(low[0], high[0])),)
    return product(mask, reader.read(reader.input(node, 0), axes))


def _cumsum(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    at = reader.integers(node, "axis", 1)
    odd = [name for name in ("exclusive", "reverse") if (reader.integers(node, name, 9) or [0])[0]]
    if at is None or odd or len(axes[at[0]]) != 1:
        raise UnreadableError(f"{named(node)} is no inclusive running sum over one axis")
    (high,) = axes[at[0]]
    (low,) = fresh(high.size)
    inner = list(axes)
    inner[at[0]] = (low,)
    terms = reader.read(reader.input(node, 0), tuple(inner))
    return _summed(product((Term.of(UpTo(low, high)),), terms), (low,))


def _reduce_sum(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    value = reader.input(node, 0)
    sizes = reader.sizes(value)
    over = reader.integers(node, "axes", 1)
    over = list(range(len(sizes))) if over is None else [at % len(sizes) for at in over]
    keep = (reader.integers(node, "keepdims", 9) or [1])[0]
    rest = iter(axes if not keep else [axis for at, axis in enumerate(axes) if at not in over])
    inner = tuple(fresh(sizes[at]) if at in over else next(rest) for at in range(len(sizes)))
    return _summed(reader.read(value, inner), tuple(index for at in over for index in inner[at]))


def _reduce_mean(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    sizes = reader.sizes(reader.input(node, 0))
    over = reader.integers(node, "axes", 1) or list(range(len(sizes)))
    count = [sizes[at] for at in over]
    if any(size[0] != size[1] for size in count):
        raise UnreadableError(f"{named(node)} averages over the batch")
    return tuple(term.times(1 / float(np.prod([size[0] for size in count]))) for term in _reduce_sum(reader, node, axes))


def _matmul(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    left, right = reader.input(node, 0), reader.input(node, 1)
    left_sizes, right_sizes = reader.sizes(left), reader.sizes(right)
    if len(left_sizes) < 2 or len(right_sizes) < 2:
        raise UnreadableError(f"{named(node)} multiplies a vector")
    summed = fresh(left_sizes[-1])
    batch = axes[:-2]

    def outer(sizes: tuple[Size, ...]) -> Axes:
        own = batch[len(batch) - (len(sizes) - 2) :]
        return tuple(() if size == ONE else axis for size, axis in zip(sizes[:-2], own, strict=True))

    terms = product(
        reader.read(left, (*outer(left_sizes), axes[-2], summed)),
        reader.read(right, (*outer(right_sizes), summed, axes[-1])),
    )
    return _summed(terms, summed)


def _gemm(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    flips = [(reader.integers(node, name, 9) or [0])[0] for name in ("transA", "transB")]
    sizes = reader.sizes(reader.input(node, 0))
    summed = fresh(sizes[0 if flips[0] else 1])
    left, right = (axes[0], summed), (summed, axes[1])
    terms = product(
        reader.read(reader.input(node, 0), left[::-1] if flips[0] else left),
        reader.read(reader.input(node, 1), right[::-1] if flips[1] else right),
    )
    alpha, beta = (float(node.attributes[name].value) if name in node.attributes else 1.0 for name in ("alpha", "beta"))
    bias = reader.operand(node, 2, axes) if len(node.inputs) > 2 and node.inputs[2] is not None else ()
    return (*(t.times(alpha) for t in _summed(terms, summed)), *(t.times(beta) for t in bias))


def _einsum(reader: Reader, node: ir.Node, axes: Axes) -> Terms:
    sources, result = _equation(node, [len(reader.sizes(reader.input(node, at))) for at in range(len(node.inputs))])
    labels = dict(zip(result, axes, strict=True))
    summed: list[Axis] = []
    for at, source in enumerate(sources):
        for label, size in zip(source, reader.sizes(reader.input(node, at)), strict=True):
            if label not in labels and size != ONE:
                labels[label] = fresh(size)
                summed.append(labels[label])
    terms: Terms = (Term(number(1.0)),)
    for at, source in enumerate(sources):
        value = reader.input(node, at)
        own = (() if size == ONE else labels[label] for label, size in zip(source, reader.sizes(value), strict=True))
        terms = product(terms, reader.read(value, tuple(own)))
    return _summed(terms, tuple(index for axis in summed for index in axis))


def _equation(node: ir.Node, ranks: list[int]) -> tuple[list[str], str]:
    """Each operand's labels and the result's, an ellipsis written out in digits."""
    equation = node.attributes["equation"].as_string().replace(" ", "")
    if "->" not in equation:
        raise UnreadableError(f"{named(node)} leaves its result's axes open")
    left, result = equation.split("->")
    sources = left.split(",")
    if len(sources) != len(ranks):
        raise UnreadableError(f"{named(node)} has {len(ranks)} operands for {equation}")
    width = max(rank - len(source.replace("...", "")) for source, rank in zip(sources, ranks, strict=True))
    digits = "".join(str(at) for at in range(width)) if "..." in equation else ""
    written = []
    for source, rank in zip(sources, ranks, strict=True):
        own = rank - len(source.replace("...", ""))
        written.append(source.replace("...", digits[len(digits) - own :] if own else ""))
    result = result.replace("...", digits)
    if any(len(set(labels)) != len(labels) for labels in (*written, result)):
        raise UnreadableError(f"{named(node)} takes a diagonal")
    return written, result


def _summed(terms: Terms, over: Axis) -> Terms:
    return tuple(Term(term.scale, term.factors, term.bound | frozenset(over)) for term in terms)


READINGS: dict[str, Callable[[Reader, ir.Node, Axes], Terms]] = {
    "Identity": _same,
    "Cast": _cast,
    "Dropout": _same,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Expand": _expand,
    "Add": _add,
    "Sub": _sub,
    "Neg": _neg,
    "Mul": _mul,
    "Div": _div,
    "Reciprocal": _reciprocal,
    "Sqrt": _sqrt,
    "Pow": _pow,
    "Where": _where,
    "Clip": _bounded,
    "Max": _bounded,
    "Min": _bounded,
    "Trilu": _trilu,
    "CumSum": _cumsum,
    "ReduceSum": _reduce_sum,
    "ReduceMean": _reduce_mean,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}


def read_stable(make: Callable[[], tuple[Reader, Terms]], splits: Splits) -> tuple[Reader, Terms]:
    """Read until no index falls apart while it is read; the terms come resolved."""
    from gaussport.export.fusion.notation import ReadAgainError

    for _ in range(8):
        try:
            reader, terms = make()
            return reader, resolved(terms, splits)
        except ReadAgainError:
            continue
    raise UnreadableError("its axes are cut in too many ways")
