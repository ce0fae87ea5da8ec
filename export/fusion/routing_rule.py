"""Recognises `LatentMemoryRouting` in a value read in index notation.

output[b, i, p, d] = Σ_k Σ_n read[b, i, p, k] · write[b, n, p, k] · v[b, n, p, d] · [n ≤ i] / D[b, i, p]
D[b, i, p]         = ε + Σ_k Σ_n read[b, i, p, k] · write[b, n, p, k] · [n ≤ i]                 ([n ≤ i] if causal)
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from gaussport.export.fusion.anchors import Anchor, Kind
from gaussport.export.fusion.candidate import Candidate, Match, Operand
from gaussport.export.fusion.indices import Axis, Index, Splits
from gaussport.export.fusion.mixture import Mixture, mixture_of, same_mixture
from gaussport.export.fusion.notation import Factor, Group, Leaf, Share, Term, Terms, UpTo, renamed
from gaussport.export.fusion.reading import named
from gaussport.export.fusion.sampling import Samples
from gaussport.export.fusion.verdict import NotYet, RefusedError
from gaussport.plugins.latent_memory_routing.schema import OPERATOR


def match(candidate: Candidate, anchors: Mapping[ir.Value, Anchor], samples: Samples, splits: Splits) -> Match:
    """The operator's operands for this candidate.

    Raises:
        NotYet: it lacks a part of the operator.
        RefusedError: it has all of them and is not the operator.
    """
    if len(candidate.terms) > 1 and all(_routes(term, anchors) for term in candidate.terms):
        where = named(candidate.value.producer())  # type: ignore[arg-type]
        raise RefusedError(1, f"{where} adds {len(candidate.terms)} products of responsibilities, the operator has one")
    if len(candidate.terms) != 1:
        raise NotYet
    (term,) = candidate.terms
    parts = [f for f, p in term.factors if isinstance(f, Leaf) and p == 1 and _is_routing(f, anchors)]
    if len(parts) != 2:
        raise NotYet
    free = {index for axis in candidate.axes for index in axis}
    token, value = _written(term, parts, free)
    write = next((part for part in parts if token in part.indices), None)
    read = next((part for part in parts if part is not write), None)
    if write is None or read is None or len(term.bound) < 2:
        raise NotYet
    for part in (write, read):
        if not isinstance(part, Share):
            raise RefusedError(2, f"{anchors[part.value].name} is never divided by its sum over the components")
    assert isinstance(read, Share)
    assert isinstance(write, Share)
    component = _component(term, read, write, anchors)
    query = _query(read, value, free)
    rest = {factor: power for factor, power in term.factors if factor not in (read, write, value)}
    causal = _take_causal(rest, token, query, samples)
    mask = _take_mask(rest, token, value, component)
    _check_denominator(term, rest, (read, write), (component, token, query), mask, causal, candidate, samples)

    keys = mixture_of(anchors[write.value], write, component, samples, splits)
    queries = mixture_of(anchors[read.value], read, component, samples, splits)
    if not same_mixture(queries, keys, component, component):
        raise RefusedError(
            5, f"{anchors[read.value].name} and {anchors[write.value].name} take responsibilities of different mixtures"
        )
    shared = (value.indices & free) - {token}
    features = keys.features.indices
    batch = _ordered(value, (x for x in shared if not x.fixed or (x in features and x not in keys.heads)))
    heads = _ordered(value, (x for x in shared if x in keys.heads))
    depth = _ordered(value, (x for x in shared if x not in batch and x not in heads))
    if keys.heads - set(heads):
        raise RefusedError(3, "its mixtures vary along an axis that its values do not have")
    operands = (
        _tokens(queries.features, (batch, (query,), heads, _axis(queries.feature))),
        _tokens(keys.features, (batch, (token,), heads, _axis(keys.feature))),
        _tokens(value, (batch, (token,), heads, depth)),
        *_mixture(queries, heads, component),
        *(() if mask is None else (Operand((((Term.of(mask),), (batch, (token,))),)),)),
    )
    epsilon = _epsilon(term)
    return Match(
        candidate.value,
        candidate.axes,
        OPERATOR,
        operands,
        (batch, (query,), heads, depth),
        tuple(dict.fromkeys((anchors[read.value], anchors[write.value]))),
        noise=(queries.features.value, keys.features.value, value.value),
        attributes=(("epsilon", epsilon), ("causal", int(causal))),
    )


def _routes(term: Term, anchors: Mapping[ir.Value, Anchor]) -> bool:
    return sum(isinstance(factor, Leaf) and _is_routing(factor, anchors) for factor, _ in term.factors) == 2


def _is_routing(leaf: Leaf, anchors: Mapping[ir.Value, Anchor]) -> bool:
    return leaf.value in anchors and anchors[leaf.value].kind is Kind.ROUTING


def _written(term: Term, parts: list[Leaf], free: set[Index]) -> tuple[Index, Leaf]:
    """The index of the tokens that write, and what they write."""
    for factor, power in term.factors:
        if not isinstance(factor, Leaf) or factor in parts or power != 1:
            continue
        tokens = [x for x in factor.indices & term.bound if sum(x in part.indices for part in parts) == 1]
        if len(tokens) == 1 and factor.indices & free - set().union(*(part.indices for part in parts)):
            return tokens[0], factor
    raise NotYet


def _component(term: Term, read: Share, write: Share, anchors: Mapping[ir.Value, Anchor]) -> Index:
    for share in (read, write):
        if len(share.over) != 1:
            raise RefusedError(2, f"{anchors[share.value].name} is normalised over more than its components")
    if read.over != write.over or not read.over <= term.bound:
        raise NotYet
    (component,) = read.over
    return component


def _query(read: Share, value: Leaf, free: set[Index]) -> Index:
    own = read.indices & free - value.indices
    if len(own) != 1:
        raise NotYet
    return next(iter(own))


def _take_causal(rest: dict[Factor, Fraction], token: Index, query: Index, samples: Samples) -> bool:
    for factor in list(rest):
        lower = isinstance(factor, UpTo) and (factor.low, factor.high) == (token, query)
        if lower or (isinstance(factor, Leaf) and _is_triangle(factor, token, query, samples)):
            del rest[factor]
            return True
    return False


def _is_triangle(leaf: Leaf, token: Index, query: Index, samples: Samples) -> bool:
    """Whether a constant is 1 where the token is not after the query, and 0 elsewhere."""
    table = samples.constant(leaf.value)
    indices = [index for axis in leaf.axes for index in axis]
    if table is None or set(indices) != {token, query}:
        return False
    square = table.reshape([index.size[0] for index in indices])
    return bool(np.array_equal(square if indices[0] is query else square.T, np.tri(query.size[0])))


def _take_mask(rest: dict[Factor, Fraction], token: Index, value: Leaf, component: Index) -> Leaf | None:
    """A key mask: a leaf over tokens and the batch alone."""
    for factor, power in list(rest.items()):
        if isinstance(factor, Leaf) and power == 1 and token in factor.indices and component not in factor.indices:
            others = factor.indices - {token}
            if others <= value.indices and not any(index.fixed for index in others):
                del rest[factor]
                return factor
    return None


def _check_denominator(
    term: Term,
    rest: Mapping[Factor, Fraction],
    shares: tuple[Share, Share],
    indices: tuple[Index, Index, Index],
    mask: Leaf | None,
    causal: bool,
    candidate: Candidate,
    samples: Samples,
) -> None:
    (read, write), (component, token, query) = shares, indices
    where = named(candidate.value.producer())  # type: ignore[arg-type]
    others = [factor for factor in rest if not isinstance(factor, Group)]
    if others:
        raise RefusedError(4, f"{_described(others[0])} multiplies the responsibilities")
    if candidate.faults:
        raise RefusedError(4, candidate.faults[0])
    groups = [factor for factor in rest if isinstance(factor, Group)]
    if not groups:
        raise RefusedError(3, f"{where} is never divided by the mass Γ_Q Γ_Kᵀ 1 + ε that the query reads")
    if len(groups) > 1 or rest[groups[0]] != -1 or term.scale.scalar is None or abs(term.scale.scalar - 1) > 1e-6:
        raise RefusedError(4, f"{where} is divided by more than the mass that the query reads")
    constants = [part for part in groups[0].terms if not part.factors]
    masses = [part for part in groups[0].terms if part.factors]
    if not (len(masses) == 1 and _is_mass(masses[0], read, write, component, token, query, mask, causal, samples)):
        raise RefusedError(4, f"{where} is divided by another sum than the mass Γ_Q Γ_Kᵀ 1 that the query reads")
    if not constants:
        raise RefusedError(
            4,
            f"{where} is divided by the mass that the query reads without an ε: where the mass vanishes "
            "it is 0 / 0, the operator is not",
        )
    epsilon = constants[0].scale.scalar
    if len(constants) > 1 or epsilon is None or not 0 < epsilon < 1:
        raise RefusedError(4, f"{where} is divided by the mass plus something that is no small ε")


def _described(factor: Factor) -> str:
    if isinstance(factor, Leaf):
        producer = factor.value.producer()
        return f"the table {factor.value.name}" if producer is None else f"{named(producer)}{_top_k(factor.value)}"
    return "a running sum's mask"


def _top_k(value: ir.Value) -> str:
    """Says so when a value is made from a TopK not far before it."""
    seen, front = {value}, [value]
    for _ in range(8):
        front = [i for v in front if (n := v.producer()) is not None for i in n.inputs if i is not None and i not in seen]
        seen.update(front)
        if any((node := v.producer()) is not None and node.op_type == "TopK" for v in front):
            return ", a top-k mask,"
    return ""


def _is_mass(
    mass: Term,
    read: Share,
    write: Share,
    component: Index,
    token: Index,
    query: Index,
    mask: Leaf | None,
    causal: bool,
    samples: Samples,
) -> bool:
    """Whether a term is Σ_k Σ_n read · write (· mask) ([n ≤ i]) for the same tokens and components."""
    if mass.scale.scalar is None or abs(mass.scale.scalar - 1) > 1e-6 or len(mass.bound) != 2:
        return False
    for components, tokens in ((a, b) for a in mass.bound for b in mass.bound if a is not b):
        names = {components: component, tokens: token}
        (same,) = renamed((mass,), names)
        factors: dict[Factor, Fraction] = dict(same.factors)
        if not (factors.pop(read, None) == 1 and factors.pop(write, None) == 1):
            continue
        if mask is not None and factors.pop(mask, None) != 1:
            continue
        if _take_causal(factors, token, query, samples) == causal and not factors:
            return True
    return False


def _epsilon(term: Term) -> float:
    group = next(factor for factor, _ in term.factors if isinstance(factor, Group))
    scalar = next(part.scale.scalar for part in group.terms if not part.factors)
    assert scalar is not None
    return scalar


def _tokens(leaf: Leaf, axes: tuple[Axis, ...]) -> Operand:
    terms: Terms = (Term.of(leaf),)
    return Operand(((terms, axes),))


def _mixture(mixture: Mixture, heads: Axis, component: Index) -> tuple[Operand, ...]:
    whole = (heads, (component,), _axis(mixture.feature))
    return (
        Operand((((Term(mixture.mean),), whole),), field=True),
        Operand((((Term(mixture.variance),), whole),), field=True),
        Operand((((Term(mixture.log_prior),), whole[:2]),), field=True),
    )


def _axis(index: Index | None) -> Axis:
    return () if index is None else (index,)


def _ordered(leaf: Leaf, chosen: Iterable[Index]) -> Axis:
    wanted = set(chosen)
    return tuple(index for axis in leaf.axes for index in axis if index in wanted)
