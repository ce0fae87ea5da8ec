"""Index notation: a tensor's element as a sum of terms, each a number array times powers of factors, summed over indices.

    output[b, i, w, p, d] = Σ_r Σ_k Σ_j λ[b, i, w, p, r] · col[b, i, w, p, r, k] · row[b, i, k, p, r, j] · v[b, j, k, p, d]

Transposes, reshapes, unsqueezes and expands vanish in it; Einsum, MatMul and Mul with ReduceSum become the same term.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gaussport.export.fusion.indices import Axis, Index, Splits, UnreadableError

Array = NDArray[np.float64]


_MOST_TERMS = 200


class ReadAgainError(Exception):
    """An index was found to be several after something had been read as a polynomial in it."""


@dataclass(frozen=True)
class Leaf:
    """An element of a tensor that is not looked into."""

    value: ir.Value
    axes: tuple[Axis, ...]

    @property
    def indices(self) -> frozenset[Index]:
        return frozenset(index for axis in self.axes for index in axis)


@dataclass(frozen=True)
class Share(Leaf):
    """An element that was divided by the sum of its like over the indices `over`: a softmax's output."""

    over: frozenset[Index] = frozenset()


@dataclass(frozen=True)
class Coordinate:
    """The number of the cell that an index stands at."""

    index: Index

    @property
    def indices(self) -> frozenset[Index]:
        return frozenset({self.index})


@dataclass(frozen=True)
class UpTo:
    """1 where `low` ≤ `high`, else 0: a running sum's mask."""

    low: Index
    high: Index

    @property
    def indices(self) -> frozenset[Index]:
        return frozenset({self.low, self.high})


@dataclass(frozen=True)
class Group:
    """A sum of terms as one factor, e.g. a denominator."""

    terms: tuple["Term", ...]

    @property
    def indices(self) -> frozenset[Index]:
        return frozenset(index for term in self.terms for index in term.free)


Factor = Leaf | Coordinate | UpTo | Group


@dataclass(frozen=True, eq=False)
class Numbers:
    """Known numbers over indices, broadcast over all others; a plain number has none."""

    array: Array
    indices: tuple[Index, ...] = ()

    def over(self, indices: tuple[Index, ...]) -> Array:
        """The array with these axes, size 1 where it does not vary."""
        order = [self.indices.index(index) for index in indices if index in self.indices]
        assert len(order) == len(self.indices)
        return self.array.transpose(order).reshape([i.size[0] if i in self.indices else 1 for i in indices])

    def __mul__(self, other: "Numbers") -> "Numbers":
        joined = tuple(dict.fromkeys((*self.indices, *other.indices)))
        return Numbers(np.asarray(self.over(joined) * other.over(joined)), joined)

    def __add__(self, other: "Numbers") -> "Numbers":
        joined = tuple(dict.fromkeys((*self.indices, *other.indices)))
        return Numbers(np.asarray(self.over(joined) + other.over(joined)), joined)

    def __pow__(self, power: Fraction) -> "Numbers":
        return Numbers(np.asarray(self.array ** float(power)), self.indices)

    def total(self, over: Iterable[Index]) -> "Numbers":
        """Summed over these indices, of which some may not occur: they multiply by their size."""
        numbers = self
        for index in over:
            if index in numbers.indices:
                at = numbers.indices.index(index)
                numbers = Numbers(
                    np.asarray(numbers.array.sum(at)), tuple(other for other in numbers.indices if other is not index)
                )
            else:
                numbers = Numbers(numbers.array * index.size[0], numbers.indices)
        return numbers

    @property
    def scalar(self) -> float | None:
        return float(self.array) if not self.indices else None


def number(value: float) -> Numbers:
    return Numbers(np.asarray(value, dtype=np.float64))


@dataclass(frozen=True)
class Term:
    """scale · Π factor^power, summed over `bound`."""

    scale: Numbers
    factors: tuple[tuple[Factor, Fraction], ...] = ()
    bound: frozenset[Index] = frozenset()

    @classmethod
    def of(cls, factor: Factor, power: Fraction = Fraction(1)) -> "Term":
        return cls(number(1.0), ((factor, power),))

    @property
    def powers(self) -> dict[Factor, Fraction]:
        return dict(self.factors)

    @property
    def free(self) -> frozenset[Index]:
        mentioned = frozenset(self.scale.indices).union(*(factor.indices for factor, _ in self.factors))
        return mentioned - self.bound

    def __mul__(self, other: "Term") -> "Term":
        assert not self.bound & other.bound
        return Term(self.scale * other.scale, _merged((*self.factors, *other.factors)), self.bound | other.bound)

    def __pow__(self, power: Fraction) -> "Term":
        assert not self.bound
        return Term(self.scale**power, tuple((factor, own * power) for factor, own in self.factors))

    def times(self, value: float) -> "Term":
        return Term(self.scale * number(value), self.factors, self.bound)

    def without(self, *factors: Factor) -> "Term":
        return Term(self.scale, tuple(entry for entry in self.factors if entry[0] not in factors), self.bound)


Terms = tuple[Term, ...]


def _merged(factors: Iterable[tuple[Factor, Fraction]]) -> tuple[tuple[Factor, Fraction], ...]:
    powers: dict[Factor, Fraction] = {}
    for factor, power in factors:
        powers[factor] = powers.get(factor, Fraction(0)) + power
    return tuple((factor, power) for factor, power in powers.items() if power)


def product(left: Terms, right: Terms) -> Terms:
    """Every term of one times every term of the other.

    Raises:
        UnreadableError: they would be more than any of our operators has.
    """
    if len(left) * len(right) > _MOST_TERMS:
        raise UnreadableError("the expression has too many terms")
    return collected(a * b for a in left for b in right)


def power_of(terms: Terms, power: Fraction) -> Terms:
    """A sum to a power: of one term without sums term by term, else as a group."""
    if len(terms) == 1 and not terms[0].bound:
        return (terms[0] ** power,)
    return (Term.of(Group(terms), power),)


def collected(terms: Iterable[Term]) -> Terms:
    """Terms that differ in their numbers alone, added."""
    found: dict[tuple[frozenset[tuple[Factor, Fraction]], frozenset[Index]], Term] = {}
    for term in terms:
        key = (frozenset(term.factors), term.bound)
        before = found.get(key)
        found[key] = term if before is None else Term(before.scale + term.scale, term.factors, term.bound)
    return tuple(term for term in found.values() if np.any(term.scale.array != 0))


def resolved(terms: Terms, splits: Splits) -> Terms:
    """The same terms in indices that nobody has split."""
    return collected(_resolved_term(term, splits) for term in terms)


def _resolved_term(term: Term, splits: Splits) -> Term:
    indices = tuple(part for index in term.scale.indices for part in splits.resolve((index,)))
    scale = Numbers(term.scale.array.reshape([index.size[0] for index in indices]), indices)
    factors = _merged((_resolved_factor(factor, splits), power) for factor, power in term.factors)
    return Term(scale, factors, frozenset(part for index in term.bound for part in splits.resolve((index,))))


def _resolved_factor(factor: Factor, splits: Splits) -> Factor:
    match factor:
        case Share():
            raise AssertionError("shares are found in terms that are resolved")
        case Leaf(value, axes):
            return Leaf(value, tuple(splits.resolve(axis) for axis in axes))
        case Group(terms):
            return Group(resolved(terms, splits))
        case Coordinate(index) if splits.resolve((index,)) != (index,):
            raise ReadAgainError
        case _:
            return factor


def renamed(terms: Terms, names: Mapping[Index, Index]) -> Terms:
    """The same terms with indices replaced."""
    return tuple(
        Term(
            Numbers(term.scale.array, tuple(names.get(index, index) for index in term.scale.indices)),
            _merged((_renamed_factor(factor, names), power) for factor, power in term.factors),
            frozenset(names.get(index, index) for index in term.bound),
        )
        for term in terms
    )


def _renamed_factor(factor: Factor, names: Mapping[Index, Index]) -> Factor:
    match factor:
        case Share(value, axes, over):
            renamed_axes = tuple(tuple(names.get(index, index) for index in axis) for axis in axes)
            return Share(value, renamed_axes, frozenset(names.get(index, index) for index in over))
        case Leaf(value, axes):
            return Leaf(value, tuple(tuple(names.get(index, index) for index in axis) for axis in axes))
        case Coordinate(index):
            return Coordinate(names.get(index, index))
        case UpTo(low, high):
            return UpTo(names.get(low, low), names.get(high, high))
        case Group(terms):
            return Group(renamed(terms, names))
