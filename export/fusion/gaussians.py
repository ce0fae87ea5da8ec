"""μ and σ of a filter, from its exponent as a polynomial or from the table that somebody folded it into."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gaussport.export.fusion.anchors import Anchor, not_one_filter, read_score
from gaussport.export.fusion.indices import Index, Splits
from gaussport.export.fusion.notation import (
    Array,
    Coordinate,
    Leaf,
    Numbers,
    Share,
    Term,
    Terms,
    collected,
    number,
    power_of,
)
from gaussport.export.fusion.notation import product as times
from gaussport.export.fusion.sampling import Samples
from gaussport.export.fusion.verdict import RefusedError

_STAGE = 5
_SAME_CELL = 1e-5  # in cells; what float32 leaves of i − i after two tables
_TABLE_ERROR = 2e-6  # of a weight; two float32 roundings of an exponent near ten
_LEAST_WEIGHT = 1e-37  # smaller weights are subnormal numbers, which do not hold a logarithm
_NEAREST = 0.05  # a σ so small that the nearest cell takes everything


@dataclass(frozen=True)
class Gaussian:
    """One direction's filter: offset and width in cells, and the factor by which its weights exceed a sum of one."""

    mu: Terms
    sigma: Terms
    total: Numbers


def gaussian_of(anchor: Anchor, leaf: Leaf, cell: Index, query: Index, samples: Samples, splits: Splits) -> Gaussian:
    """The filter over `cell` around `query`.

    Raises:
        RefusedError: it is no Gaussian of their distance.
    """
    if anchor.score is None:
        table = samples.constant(anchor.value)
        assert table is not None
        indices = tuple(index for axis in leaf.axes for index in axis)
        numbers = Numbers(table.astype(np.float64).reshape([index.size[0] for index in indices]), indices)
        return _from_table(anchor, numbers, cell, query)
    assert isinstance(leaf, Share)
    reader, terms = read_score(anchor.score, leaf.axes, tuple(leaf.over), samples, splits)
    fault = not_one_filter(terms, leaf.over) or next(iter(reader.faults), "")
    if fault:
        raise RefusedError(_STAGE, f"{anchor.name}: {fault}")
    line, square = (_coefficient(anchor, terms, cell, power) for power in (1, 2))
    if not square:
        raise RefusedError(_STAGE, f"{anchor.name} has no square of the distance in its exponent, it is no Gaussian")
    inverse = power_of(square, Fraction(-1))
    shift = tuple(term.times(0.5) for term in times(line, inverse))
    here = Term(Numbers(np.arange(query.size[0], dtype=np.float64), (query,)))
    mu = _settled(collected((here, *shift)), query)
    sigma = _settled(power_of(tuple(term.times(-2.0) for term in square), Fraction(-1, 2)), query)
    if not all(np.all(np.isfinite(term.scale.array)) for term in (*mu, *sigma)):
        raise RefusedError(_STAGE, f"{anchor.name} grows with the distance, it is no Gaussian")
    return Gaussian(mu, sigma, number(1.0))


def _coefficient(anchor: Anchor, terms: Terms, cell: Index, power: int) -> Terms:
    """What multiplies the coordinate to that power."""
    coordinate = Coordinate(cell)
    chosen = [term.without(coordinate) for term in terms if term.powers.get(coordinate, 0) == power]
    others = [term for term in terms if coordinate not in term.powers]
    for term in (*chosen, *others):
        if cell in term.free:
            raise RefusedError(_STAGE, f"{anchor.name} has more than the distance to a cell in its exponent")
    if any(term.bound for term in chosen):
        raise RefusedError(_STAGE, f"{anchor.name} sums over features in its exponent, it is no filter over cells")
    return tuple(chosen)


def _settled(terms: Terms, query: Index) -> Terms:
    """Without what rounding left: nothing is added to μ that is no part of a cell, and no table varies by the query."""
    settled = []
    for term in terms:
        numbers = term.scale
        if query in numbers.indices:
            at = numbers.indices.index(query)
            spread = float(np.ptp(numbers.array, axis=at).max())
            if spread <= _SAME_CELL * max(1.0, float(np.abs(numbers.array).max())):
                rest = tuple(index for index in numbers.indices if index is not query)
                numbers = Numbers(np.asarray(numbers.array.mean(at)), rest)
        if term.factors or float(np.abs(numbers.array).max()) > _SAME_CELL:
            settled.append(Term(numbers, term.factors, term.bound))
    return tuple(settled) or (Term(number(0.0)),)


def _from_table(anchor: Anchor, numbers: Numbers, cell: Index, query: Index) -> Gaussian:
    rest = tuple(index for index in numbers.indices if index not in (query, cell))
    if query not in numbers.indices:
        raise RefusedError(_STAGE, f"{anchor.name} has the same weights for every cell, it is no filter by distance")
    table = numbers.over((*rest, query, cell))
    sums = table.sum(-1)
    total = sums.mean(-1)
    if np.ptp(sums, axis=-1).max() > _TABLE_ERROR * len(table[-1]) * total.max():
        raise RefusedError(
            _STAGE, f"{anchor.name} is not normalised: its rows sum to {sums.min():.4g} up to {sums.max():.4g}"
        )
    weights = table / sums[..., None]
    mu, sigma = fitted(weights)
    error = float(np.abs(filters(mu, sigma, *weights.shape[-2:]) - weights).max())
    if not error <= _TABLE_ERROR:
        raise RefusedError(_STAGE, f"{anchor.name} is no Gaussian filter: the nearest one differs by {error:.1e}")
    return Gaussian((Term(Numbers(mu, rest)),), (Term(Numbers(sigma, rest)),), Numbers(total, rest))


def fitted(weights: Array) -> tuple[Array, Array]:
    """μ and σ [...] of filters [..., i, j], from ratios of neighbours: with t = i − j,
    log w[j + 1] − log w[j] = (2t − 1) / 2σ² − μ / σ²."""
    query, cell = weights.shape[-2:]
    usable = (weights[..., 1:] > _LEAST_WEIGHT) & (weights[..., :-1] > _LEAST_WEIGHT)
    logs = np.log(np.maximum(weights, _LEAST_WEIGHT))
    ratio = logs[..., 1:] - logs[..., :-1]
    trust = np.where(usable, 1 / (1 - np.minimum(logs[..., 1:], logs[..., :-1])), 0.0)
    slope = 2.0 * (np.arange(query)[:, None] - np.arange(cell - 1)) - 1
    mu, sigma = np.zeros(weights.shape[:-2]), np.full(weights.shape[:-2], _NEAREST)
    for at in np.ndindex(mu.shape):
        used = usable[at]
        slopes = np.unique(slope[used])
        if len(slopes) == 1:  # two cells share all weight: any σ will do that leaves none for a third
            mu[at] = slopes[0] / 2 - float(np.median(ratio[at][used])) * _NEAREST**2
            continue
        if len(slopes) > 1:
            w = trust[at][used]
            design = np.stack([slope[used], -np.ones(int(used.sum()))], axis=-1)
            alpha, beta = np.linalg.lstsq(design * w[:, None], ratio[at][used] * w, rcond=None)[0]
            if alpha > 0:
                mu[at], sigma[at] = beta / (2 * alpha), 1 / np.sqrt(2 * alpha)
                continue
        distances = np.arange(query) - weights[at].argmax(-1)
        mu[at] = distances[np.argmin(np.abs(distances - np.median(distances)))]
    return mu, sigma


def filters(mu: Array, sigma: Array, query: int, cell: int) -> Array:
    """The filters [..., query, cell] of these μ and σ [...]."""
    distance = np.arange(query)[:, None] - np.arange(cell)
    squared = (distance - mu[..., None, None]) ** 2
    weights = np.exp(-(squared - squared.min(-1, keepdims=True)) / (2 * sigma[..., None, None] ** 2))
    return np.asarray(weights / weights.sum(-1, keepdims=True))
