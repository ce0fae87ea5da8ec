"""Exponentials that are divided by their own sum become shares, however far the division stands from the exponential."""

from collections.abc import Mapping
from fractions import Fraction

import onnx_ir as ir

from gaussport.export.fusion.anchors import Anchor
from gaussport.export.fusion.indices import Index
from gaussport.export.fusion.notation import Factor, Group, Leaf, Share, Term, Terms

_ONE = Fraction(1)


def with_shares(terms: Terms, anchors: Mapping[ir.Value, Anchor]) -> Terms:
    """The terms, and those in their groups, with each normalised anchor as a share."""
    return tuple(_shared(term, anchors) for term in terms)


def _shared(term: Term, anchors: Mapping[ir.Value, Anchor]) -> Term:
    factors: dict[Factor, Fraction] = dict(term.factors)
    for factor, power in term.factors:
        anchor = anchors.get(factor.value) if isinstance(factor, Leaf) else None
        if not isinstance(factor, Leaf) or anchor is None or power != 1:
            continue
        if anchor.axis is not None:
            over = frozenset(factor.axes[anchor.axis])
        else:
            found = next(((group, over) for group in factors if (over := _sums(group, factor, factors))), None)
            if found is None:
                continue
            group, over = found
            del factors[group]
        del factors[factor]
        factors[Share(factor.value, factor.axes, over)] = _ONE
    grown = {
        Group(with_shares(factor.terms, anchors)) if isinstance(factor, Group) else factor: power
        for factor, power in factors.items()
    }
    return Term(term.scale, tuple(grown.items()), term.bound)


def _sums(group: Factor, leaf: Leaf, factors: Mapping[Factor, Fraction]) -> frozenset[Index]:
    """Over which indices of `leaf` the group is its sum, if it divides by just that."""
    if not isinstance(group, Group) or factors[group] != -1 or len(group.terms) != 1:
        return frozenset()
    (term,) = group.terms
    if term.scale.scalar != 1.0 or len(term.factors) != 1 or term.factors[0][1] != 1:
        return frozenset()
    other = term.factors[0][0]
    if not isinstance(other, Leaf) or other.value is not leaf.value:
        return frozenset()
    names = renaming(other, leaf)
    if any((index in term.bound) != (names[index] is not index) for index in names):
        return frozenset()
    return frozenset(names[index] for index in term.bound)


def renaming(source: Leaf, target: Leaf) -> dict[Index, Index]:
    """The indices of one element of a value as another element's."""
    pairs = zip(source.axes, target.axes, strict=True)
    return {a: b for first, second in pairs for a, b in zip(first, second, strict=True)}
