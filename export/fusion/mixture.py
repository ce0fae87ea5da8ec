"""The Gaussian mixture behind responsibilities, from their score as a quadratic in the tokens' features.

score[k] = Σ_m A[p, k, m] x[m]² + Σ_m B[p, k, m] x[m] + C[p, k]    whichever way it was written, so
variance = −1 / 2A    mean = B · variance    log π = C + ½ Σ_m [log(2π · variance) + mean² / variance] up to a constant
"""

from dataclasses import dataclass

import numpy as np

from gaussport.export.fusion.anchors import Anchor, read_mixture_score
from gaussport.export.fusion.indices import Index, Splits
from gaussport.export.fusion.notation import Array, Leaf, Numbers, Share, Term, Terms, renamed
from gaussport.export.fusion.sampling import Samples
from gaussport.export.fusion.verdict import RefusedError

_STAGE = 5


@dataclass(frozen=True)
class Mixture:
    """The features x and, over `indices` = (heads …, k, m), mean and variance; log_prior lacks m."""

    features: Leaf
    heads: frozenset[Index]
    feature: Index | None
    mean: Numbers
    variance: Numbers
    log_prior: Numbers


def mixture_of(anchor: Anchor, share: Share, component: Index, samples: Samples, splits: Splits) -> Mixture:
    """The mixture whose responsibilities these are.

    Raises:
        RefusedError: the score is no log density of diagonal Gaussians.
    """
    assert anchor.score is not None
    reader, terms = read_mixture_score(anchor.score, share.axes, tuple(share.over), samples, splits)
    if reader.faults:
        raise RefusedError(_STAGE, f"{anchor.name}: {reader.faults[0]}")
    terms = tuple(term for term in terms if component in term.free)  # the softmax does not see the others
    features, feature = _features(anchor, terms)
    aligned = _aligned(terms, feature)
    parts = {power: [term for term in aligned if _power(term) == power] for power in (0, 1, 2)}
    for term in parts[1] + parts[2]:
        (leaf,) = (factor for factor, _ in term.factors)
        if leaf != features:
            raise RefusedError(_STAGE, f"{anchor.name} multiplies features by others, its covariance is not diagonal")
    inner = () if feature is None else (feature,)
    heads = tuple(dict.fromkeys(x for t in aligned for x in t.scale.indices if x is not component and x is not feature))
    order = (*heads, component, *inner)
    shape = tuple(index.size[0] for index in order)
    square, line = (_total(parts[power], order, shape) for power in (2, 1))
    constant = _total([Term(t.scale.total(t.bound)) for t in parts[0]], order[: len(heads) + 1], shape[: len(heads) + 1])
    if not np.all(square < 0):
        raise RefusedError(_STAGE, f"{anchor.name} has features without a negative square in its score, it is no Gaussian")
    variance = -0.5 / square
    mean = line * variance
    density = np.log(2 * np.pi * variance) + mean**2 / variance
    prior = constant + 0.5 * (density.sum(-1) if inner else density)
    prior = prior - prior.max(-1, keepdims=True)
    prior = prior - np.log(np.exp(prior).sum(-1, keepdims=True))
    return Mixture(
        features,
        frozenset(heads),
        feature,
        Numbers(mean, order),
        Numbers(variance, order),
        Numbers(prior, (*heads, component)),
    )


def same_mixture(one: Mixture, other: Mixture, component: Index, its: Index) -> bool:
    """Whether two mixtures are equal but for the names of their indices."""
    if one.heads != other.heads:
        return False
    names = {its: component}
    if one.feature is not None and other.feature is not None:
        names[other.feature] = one.feature
    for a, b in ((one.mean, other.mean), (one.variance, other.variance), (one.log_prior, other.log_prior)):
        named = Numbers(b.array, tuple(names.get(index, index) for index in b.indices))
        if set(named.indices) != set(a.indices) or not np.allclose(named.over(a.indices), a.array, rtol=1e-4, atol=1e-5):
            return False
    return True


def _power(term: Term) -> int:
    return int(sum(power for _, power in term.factors))


def _features(anchor: Anchor, terms: Terms) -> tuple[Leaf, Index | None]:
    """The leaf that the squares are of, and its feature index."""
    squares = [term for term in terms if len(term.factors) == 1 and term.factors[0][1] == 2]
    if not squares:
        raise RefusedError(_STAGE, f"{anchor.name} has no squares of features in its score, it is no Gaussian")
    leaf = squares[0].factors[0][0]
    inner = squares[0].bound & leaf.indices
    if not isinstance(leaf, Leaf) or len(inner) > 1:
        raise RefusedError(_STAGE, f"{anchor.name} has features along more than one axis")
    for term in terms:
        if _power(term) > 2 or len(term.factors) > 1 or any(not isinstance(factor, Leaf) for factor, _ in term.factors):
            raise RefusedError(_STAGE, f"{anchor.name} multiplies features by others, its covariance is not diagonal")
    return leaf, next(iter(inner), None)


def _aligned(terms: Terms, feature: Index | None) -> Terms:
    """Every term's own feature index, which each sum made for itself, renamed to one."""
    return tuple(
        renamed((term,), {index: feature for index in term.bound if feature is not None and term.factors})[0]
        for term in terms
    )


def _total(terms: list[Term], order: tuple[Index, ...], shape: tuple[int, ...]) -> Array:
    total = np.zeros(shape)
    for term in terms:
        total = total + term.scale.over(order)
    return total
