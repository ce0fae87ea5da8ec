"""Writes a match into the graph: leaves are brought into the operator's axes, numbers become initializers."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.tape import Tape

from gaussport.export.fusion.candidate import Match, Operand
from gaussport.export.fusion.indices import Axis, Index, size_of
from gaussport.export.fusion.notation import Array, Leaf, Numbers, Term, Terms
from gaussport.export.fusion.sampling import Samples
from gaussport.export.fusion.verdict import RefusedError
from gaussport.plugins import DOMAIN, OPSET_VERSION

_TOKEN_AXES = 3  # b, h, w come first in a field


class Written:
    """The nodes and initializers of one match, not yet in any graph."""

    def __init__(self, match: Match, samples: Samples, name: str) -> None:
        self._samples, self._name = samples, name
        self._tape = Tape()
        self._numbered = 0
        self.initializers: list[ir.Value] = []
        names = [operand.name for operand in match.operator.operands]
        varying = _varying(match, samples)
        first = self._operand(match.operands[0], names[0], None)
        rest = [
            self._operand(operand, names[at], (varying, match.layout, first) if operand.field else None)
            for at, operand in enumerate(match.operands[1:], 1)
        ]
        output = self._op(
            match.operator.name,
            [first, *rest],
            dict(match.attributes),
            sizes=[size_of(axis) for axis in match.layout],
            domain=DOMAIN,
            version=OPSET_VERSION,
            name=name,
        )
        node = output.producer()
        assert node is not None
        self.node = node
        self.output = self._laid_out(output, match.layout, match.axes)

    @property
    def nodes(self) -> Sequence[ir.Node]:
        return self._tape.nodes

    def _operand(self, operand: Operand, name: str, field: tuple[bool, tuple[Axis, ...], ir.Value] | None) -> ir.Value:
        known = [(_known(terms, self._samples), axes) for terms, axes in operand.parts]
        numbers = [(part, axes) for part, axes in known if part is not None]
        if len(numbers) == len(known):
            shaped = list(np.broadcast_arrays(*(_table(part, axes) for part, axes in numbers)))
            array = np.stack(shaped, axis=-1) if len(shaped) > 1 else shaped[0]
            if field is None or not field[0] or len(operand.parts[0][1]) < _TOKEN_AXES + 1:
                return self._initializer(array, name)
            tensors = [self._initializer(part, f"{name}_{at}") for at, part in enumerate(shaped)]
        elif (pair := pair_of(operand, self._samples)) is not None:
            leaf, power = pair
            value = self._laid_out(leaf.value, leaf.axes, (*operand.parts[1][1], leaf.axes[-1]))
            return value if power == 1 else self._power(value, float(power))
        else:
            tensors = [self._sum(terms, axes) for terms, axes in operand.parts]
        if field is not None and field[0]:
            tensors = [
                tensor if _is_whole(*part) else self._full(tensor, part[1], field[2])
                for tensor, part in zip(tensors, operand.parts, strict=True)
            ]
        if len(tensors) == 1:
            return tensors[0]
        last = self._initializer(np.asarray([-1]), "last", np.int64)
        return self._op("Concat", [self._op("Unsqueeze", [tensor, last]) for tensor in tensors], {"axis": -1})

    def _full(self, tensor: ir.Value, axes: tuple[Axis, ...], value: ir.Value) -> ir.Value:
        """A part of a field at its full size, [B, H, W, P, R]."""
        start = self._op("Shape", [value], {"start": 0, "end": 1})
        rest = self._initializer(np.asarray([size_of(axis)[0] for axis in axes[1:]]), "field", np.int64)
        return self._op("Expand", [tensor, self._op("Concat", [start, rest], {"axis": 0})])

    def _sum(self, terms: Terms, axes: tuple[Axis, ...]) -> ir.Value:
        parts = [self._term(_with_numbers(term, self._samples), axes) for term in terms]
        total = parts[0]
        for part in parts[1:]:
            total = self._op("Add", [total, part])
        return total

    def _term(self, term: Term, axes: tuple[Axis, ...]) -> ir.Value:
        product: ir.Value | None = None
        for factor, power in term.factors:
            if not isinstance(factor, Leaf):
                raise RefusedError(6, "one of its parameters is a quotient of sums")
            value = self._laid_out(factor.value, factor.axes, axes)
            if power != 1:
                value = self._power(value, float(power))
            product = value if product is None else self._op("Mul", [product, value])
        if product is not None and term.scale.scalar == 1.0:
            return product
        scale = self._initializer(_grouped(term.scale.over(_flat(axes)), axes), "scale")
        return scale if product is None else self._op("Mul", [product, scale])

    def _power(self, value: ir.Value, power: float) -> ir.Value:
        if power in (-1.0, -0.5):
            value = self._op("Sqrt", [value]) if power == -0.5 else value
            return self._op("Reciprocal", [value])
        if power == 0.5:
            return self._op("Sqrt", [value])
        return self._op("Pow", [value, self._initializer(np.asarray(power), "power")])

    def _laid_out(self, value: ir.Value, source: tuple[Axis, ...], target: tuple[Axis, ...]) -> ir.Value:
        """Reshape, transpose, reshape: as few of them as it takes."""
        present = [index for axis in source for index in axis]
        order = [index for axis in target for index in axis if index in present]
        if set(order) != set(present):
            raise RefusedError(6, f"{value.name} varies along an axis that the operator's operand does not have")
        if order == present:
            shape = [size_of(tuple(index for index in axis if index in present)) for axis in target]
            return value if shape == [size_of(axis) for axis in source] else self._reshaped(value, shape)
        split = [size_of((index,)) for index in present]
        if split != [size_of(axis) for axis in source]:
            value = self._reshaped(value, split)
        value = self._op("Transpose", [value], {"perm": [present.index(index) for index in order]}, [i.size for i in order])
        shape = [size_of(tuple(index for index in axis if index in present)) for axis in target]
        return value if shape == [index.size for index in order] else self._reshaped(value, shape)

    def _reshaped(self, value: ir.Value, sizes: Sequence[tuple[int, int]]) -> ir.Value:
        shape = [size[0] if size[0] == size[1] else -1 for size in sizes]
        if shape.count(-1) > 1:
            raise RefusedError(6, f"{value.name} has its batch in two axes")
        return self._op("Reshape", [value, self._initializer(np.asarray(shape), "shape", np.int64)], sizes=sizes)

    def _op(
        self,
        kind: str,
        inputs: Sequence[ir.Value],
        attributes: Mapping[str, Any] | None = None,
        sizes: Sequence[tuple[int, int]] | None = None,
        **options: Any,
    ) -> ir.Value:
        self._numbered += 1
        options.setdefault("name", f"{self._name}/{kind}_{self._numbered}")
        value = self._tape.op(kind, inputs, attributes or {}, **options)
        value.name = f"{self._name}.{kind.lower()}_{self._numbered}"
        if sizes is not None:
            value.shape = ir.Shape([size[0] if size[0] == size[1] else None for size in sizes])
            value.type = ir.TensorType(ir.DataType.FLOAT)
        return value

    def _initializer(self, array: NDArray[Any], name: str, dtype: type = np.float32) -> ir.Value:
        self._numbered += 1
        tensor = ir.tensor(np.ascontiguousarray(array, dtype=dtype), name=f"{self._name}.{name}_{self._numbered}")
        value = ir.Value(name=tensor.name, const_value=tensor, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype))
        self.initializers.append(value)
        return value


def pair_of(operand: Operand, samples: Samples) -> tuple[Leaf, Fraction] | None:
    """The one tensor [..., 2] from which an operand's two parts were taken, with the same power, or None."""
    leaves: list[tuple[Leaf, Fraction, ir.Node]] = []
    for terms, axes in operand.parts:
        if len(terms) != 1 or len(terms[0].factors) != 1 or terms[0].scale.scalar != 1.0 or not _is_whole(terms, axes):
            return None
        leaf, power = terms[0].factors[0]
        node = leaf.value.producer() if isinstance(leaf, Leaf) else None
        if not isinstance(leaf, Leaf) or node is None or node.op_type != "Gather" or node.inputs[1] is None:
            return None
        at = samples.constant(node.inputs[1])
        if at is None or at.ndim or int(at) % 2 != len(leaves):
            return None
        leaves.append((leaf, power, node))
    if len(leaves) != 2:
        return None
    (first, power, node), (second, other_power, other) = leaves
    source = node.inputs[0]
    sizes = None if source is None else samples.shape(source)
    if source is None or sizes is None or other.inputs[0] is not source or power != other_power:
        return None
    axis = int(node.attributes["axis"].value) if "axis" in node.attributes else 0
    other_axis = int(other.attributes["axis"].value) if "axis" in other.attributes else 0
    if {axis % len(sizes), other_axis % len(sizes)} != {len(sizes) - 1} or sizes[-1] != (2, 2):
        return None
    # The first part is laid out along the grid's columns by another index than the second.
    pairs = zip(_flat(operand.parts[0][1]), _flat(operand.parts[1][1]), strict=True)
    names = dict(pairs)
    if tuple(tuple(names.get(index, index) for index in own) for own in first.axes) != second.axes:
        return None
    return Leaf(source, (*second.axes, (Index((2, 2)),))), power


def _is_whole(terms: Terms, axes: tuple[Axis, ...]) -> bool:
    """Whether one of the terms varies along every index, so that their sum has full size."""
    return any(set(_flat(axes)) <= term.free for term in terms)


def _varying(match: Match, samples: Samples) -> bool:
    """Whether any part of a field varies by token or batch, so that all must have full size."""
    for operand in match.operands:
        if not operand.field:
            continue
        for terms, axes in operand.parts:
            if len(axes) <= _TOKEN_AXES:
                continue
            tokens = {index for axis in axes[:_TOKEN_AXES] for index in axis}
            if any(tokens & term.free for term in terms):
                return True
            if not isinstance(_known(terms, samples), Numbers):
                return True
    return False


def _known(terms: Terms, samples: Samples) -> Numbers | None:
    """The terms as numbers, when no leaf is left in them that is not constant."""
    total: Numbers | None = None
    for term in (_with_numbers(term, samples) for term in terms):
        if term.factors or term.bound:
            return None
        total = term.scale if total is None else total + term.scale
    return total


def _with_numbers(term: Term, samples: Samples) -> Term:
    """Constant leaves multiplied into the term's numbers."""
    scale, factors = term.scale, []
    for factor, power in term.factors:
        constant = samples.constant(factor.value) if isinstance(factor, Leaf) else None
        if constant is None or not isinstance(factor, Leaf):
            factors.append((factor, power))
            continue
        indices = tuple(index for axis in factor.axes for index in axis)
        array = constant.astype(np.float64).reshape([index.size[0] for index in indices])
        scale = scale * Numbers(array, indices) ** power
    return Term(scale, tuple(factors), term.bound)


def _flat(axes: tuple[Axis, ...]) -> tuple[Index, ...]:
    return tuple(index for axis in axes for index in axis)


def _grouped(array: Array, axes: tuple[Axis, ...]) -> Array:
    """An array over single indices as one over axes; an axis in part of which it varies is written out."""
    sizes, at = [], 0
    for axis in axes:
        own = array.shape[at : at + len(axis)]
        whole = [index.size[0] for index in axis]
        if len(axis) > 1 and math.prod(own) not in (1, math.prod(whole)):
            array = np.broadcast_to(array, (*array.shape[:at], *whole, *array.shape[at + len(axis) :]))
            own = tuple(whole)
        sizes.append(math.prod(own))
        at += len(axis)
    return array.reshape(sizes)


def _table(numbers: Numbers, axes: tuple[Axis, ...]) -> Array:
    """Numbers laid out as axes; parameters' own axes at full size, token axes as they are."""
    array = _grouped(numbers.over(_flat(axes)), axes)
    tokens = _TOKEN_AXES if len(axes) > _TOKEN_AXES else 0
    sizes = [n if at < tokens else size_of(axis)[0] for at, (n, axis) in enumerate(zip(array.shape, axes, strict=True))]
    return np.broadcast_to(array, sizes)
