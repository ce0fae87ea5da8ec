"""Recognises `SeparableGaussianFilter` in a value read in index notation.

    output[b, i, w, p, d] =
        Σ_r Σ_k Σ_j λ[b, i, w, p, r] · second[b, i, w, p, r, k] · first[b, i, k, p, r, j] · v[b, j, k, p, d]

The operator's rows are whatever is filtered first, so a module that filters columns first is the same operator, turned.
"""

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from gaussport.export.fusion.anchors import Anchor, Kind
from gaussport.export.fusion.candidate import Candidate, Match, Operand
from gaussport.export.fusion.gaussians import gaussian_of
from gaussport.export.fusion.indices import Axis, Index, Splits
from gaussport.export.fusion.notation import Group, Leaf, Share, Term
from gaussport.export.fusion.sampling import Samples
from gaussport.export.fusion.verdict import NotYet, RefusedError
from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR

_KINDS = (Kind.FILTER, Kind.TABLE)


def match(candidate: Candidate, anchors: Mapping[ir.Value, Anchor], samples: Samples, splits: Splits) -> Match:
    """The operator's operands for this candidate.

    Raises:
        NotYet: it lacks a part of the operator.
        RefusedError: it has all of them and is not the operator.
    """
    if len(candidate.terms) != 1:
        raise NotYet
    (term,) = candidate.terms
    value = _value(term, anchors)
    filters = [leaf for leaf in _leaves(term) if leaf is not value and _is_filter(leaf, term, value, anchors)]
    _check_normalised(term, filters, anchors)
    cells = {leaf: _cell(leaf, term, value, anchors) for leaf in filters}
    if len(filters) != 2 or len(set(cells.values())) != 2:
        raise NotYet
    first, second, i, w = _passes(candidate, value, cells, anchors)
    j, k = cells[first], cells[second]
    atoms = tuple(term.bound - {j, k})
    if len(atoms) > 1:
        raise NotYet
    weight = term.without(first, second, value)
    if any(isinstance(factor, Group) for factor, _ in weight.factors):
        raise RefusedError(4, "the sum of its atoms is divided by another sum, the operator's is not")
    gaussians = [
        gaussian_of(anchors[leaf.value], leaf, cells[leaf], query, samples, splits)
        for leaf, query in ((first, i), (second, w))
    ]
    weight = Term(weight.scale * gaussians[0].total * gaussians[1].total, weight.factors)

    steering = (first, second, weight)
    shared = value.indices - {j, k}
    heads = _ordered(value, (x for x in shared if x.fixed and any(_mentions(part, x) for part in steering)))
    batch = _ordered(value, (x for x in shared if not x.fixed))
    depth = _ordered(value, (x for x in shared if x.fixed and x not in heads))
    allowed = {*batch, *heads, *atoms, i, w}
    for name, indices in (
        ("λ", weight.free),
        ("the first pass", first.indices - {j, k}),
        ("the second", second.indices - {k}),
    ):
        if indices - allowed:
            raise RefusedError(3, f"{name} varies along an axis that the operator's does not")
    # The first pass is steered by the intermediate token, which stands in the grid at (i, k).
    grid, turned = (batch, (i,), (w,), heads, atoms), (batch, (i,), (k,), heads, atoms)
    operands = (
        Operand((((Term.of(value),), (batch, (j,), (k,), heads, depth)),)),
        Operand(((gaussians[0].mu, turned), (gaussians[1].mu, grid)), field=True),
        Operand(((gaussians[0].sigma, turned), (gaussians[1].sigma, grid)), field=True),
        Operand((((weight,), grid),), field=True),
    )
    used = tuple(anchors[leaf.value] for leaf in filters)
    return Match(
        candidate.value, candidate.axes, OPERATOR, operands, (batch, (i,), (w,), heads, depth), used, noise=(value.value,)
    )


def _leaves(term: Term) -> list[Leaf]:
    return [factor for factor, power in term.factors if isinstance(factor, Leaf) and power == 1]


def _value(term: Term, anchors: Mapping[ir.Value, Anchor]) -> Leaf:
    """What is mixed: the one leaf that is summed over two axes and is no filter."""
    found = [leaf for leaf in _leaves(term) if leaf.value not in anchors and len(leaf.indices & term.bound) == 2]
    if len(found) != 1:
        raise NotYet
    return found[0]


def _is_filter(leaf: Leaf, term: Term, value: Leaf, anchors: Mapping[ir.Value, Anchor]) -> bool:
    kind = anchors[leaf.value].kind if leaf.value in anchors else None
    return kind is Kind.FILTER or (kind is Kind.TABLE and bool(leaf.indices & term.bound & value.indices))


def _check_normalised(term: Term, filters: Iterable[Leaf], anchors: Mapping[ir.Value, Anchor]) -> None:
    for leaf in filters:
        anchor = anchors[leaf.value]
        if anchor.fault:
            raise RefusedError(2, f"{anchor.name}: {anchor.fault}")
        if anchor.kind is Kind.TABLE or isinstance(leaf, Share):
            continue
        for factor, power in term.factors:
            if isinstance(factor, Group) and power < 0 and any(_holds(part, leaf) for part in factor.terms):
                added = any(not part.factors for part in factor.terms)
                what = "its sum and a constant more" if added else "a sum over more than one atom's cells: a joint softmax"
                raise RefusedError(2, f"{anchor.name} is divided by {what}")
        raise NotYet


def _holds(term: Term, leaf: Leaf) -> bool:
    return any(isinstance(factor, Leaf) and factor.value is leaf.value for factor, _ in term.factors)


def _cell(leaf: Leaf, term: Term, value: Leaf, anchors: Mapping[ir.Value, Anchor]) -> Index:
    """The index over which a filter is summed with the value."""
    if isinstance(leaf, Share):
        if len(leaf.over) != 1:
            name = anchors[leaf.value].name
            raise RefusedError(
                2, f"{name} is normalised over {len(leaf.over)} axes at once, the operator's filters over one each"
            )
        (cell,) = leaf.over
    else:
        cell = _ordered(leaf, leaf.indices & term.bound & value.indices)[-1]
    if cell not in term.bound:
        raise NotYet
    return cell


def _passes(
    candidate: Candidate, value: Leaf, cells: Mapping[Leaf, Index], anchors: Mapping[ir.Value, Anchor]
) -> tuple[Leaf, Leaf, Index, Index]:
    """Which filter comes first, which second, and the queries' row and column.

    The one that is steered by the other's cells acts first; of two that are not steered, either.
    """
    free = {index for axis in candidate.axes for index in axis}
    queries = {leaf: leaf.indices & free - value.indices for leaf in cells}
    if len(set().union(*queries.values())) != 2:
        raise NotYet
    order = _ordered(value, cells.values())
    one, two = sorted(cells, key=lambda leaf: order.index(cells[leaf]))  # rows first, as the value has them
    for first, second in ((one, two), (two, one)):
        if len(queries[first]) == 1 and cells[first] not in second.indices:
            (i,) = queries[first]
            rest = queries[second] - {i}
            if len(rest) == 1:
                return first, second, i, next(iter(rest))
    both = [anchors[leaf.value].name for leaf in cells if len(queries[leaf]) == 2]
    if len(both) == 2:
        raise RefusedError(
            3,
            f"{both[0]} and {both[1]} both follow the query token; in the operator the pass that comes first follows the "
            "intermediate token",
        )
    raise RefusedError(3, "its two filters do not follow one another")


def _mentions(part: Leaf | Term, index: Index) -> bool:
    return index in (part.free if isinstance(part, Term) else part.indices)


def _ordered(leaf: Leaf, chosen: Iterable[Index]) -> Axis:
    """Indices in the order in which the leaf has them."""
    wanted = set(chosen)
    return tuple(index for axis in leaf.axes for index in axis if index in wanted)
