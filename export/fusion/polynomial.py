"""Constants as polynomials in cell coordinates: the table of i − j is recognised for what it is, whoever folded it."""

from fractions import Fraction

import numpy as np

from gaussport.export.fusion.indices import Axis, Index, Splits
from gaussport.export.fusion.notation import Array, Coordinate, Numbers, ReadAgainError, Term, Terms

_DEGREE = 2
_NEGLIGIBLE = 4e-6  # of the largest number; float32 tables are exact to 6e-8 of it, and products of two of them to a few
_ROUNDING = 1e-12
_SMALLEST_SIDE = 4  # any three numbers lie on a parabola


def as_polynomial(numbers: Numbers, coordinates: Axis, splits: Splits) -> Terms:
    """The numbers as a polynomial of degree ≤ 2 in each coordinate over which they are one; over others they stay tables.

    Raises:
        ReadAgainError: they are polynomials in the rows and columns of an index that was taken for one, which is now split.
    """
    terms = [Term(numbers)]
    for index in coordinates:
        if index in numbers.indices:
            terms = [part for term in terms for part in _in(term, index, splits)]
    return tuple(terms)


def _in(term: Term, index: Index, splits: Splits) -> list[Term]:
    if index not in term.scale.indices:
        return [term]
    coefficients = fitted(term.scale, index)
    if coefficients is None:
        for rows in range(_SMALLEST_SIDE, index.size[0] // _SMALLEST_SIDE + 1):
            if index.size[0] % rows == 0 and _splits_into(term.scale, index, rows):
                splits.split(index, rows)
                raise ReadAgainError
        return [term]
    parts = []
    for degree, coefficient in enumerate(coefficients):
        if np.any(coefficient.array != 0):
            factors = ((Coordinate(index), Fraction(degree)),) if degree else ()
            parts.append(Term(coefficient, (*term.factors, *factors), term.bound))
    return parts


def fitted(numbers: Numbers, index: Index) -> list[Numbers] | None:
    """Coefficients of 1, x, x² over the other indices, or None where no such polynomial meets the numbers."""
    at = numbers.indices.index(index)
    table = np.moveaxis(numbers.array, at, -1)
    rest = tuple(other for other in numbers.indices if other is not index)
    size = table.shape[-1]
    x = np.arange(size, dtype=np.float64)
    centre = (size - 1) / 2
    basis = np.stack([(x - centre) ** degree for degree in range(min(size, _DEGREE + 1))])
    solution = table @ np.linalg.pinv(basis)  # [..., degrees]
    scale = float(np.abs(table).max())
    reach = [scale * _NEGLIGIBLE / max(centre, 1.0) ** degree for degree in range(len(basis))]
    if np.abs(solution @ basis - table).max() > scale * _NEGLIGIBLE:
        return None
    solution = np.where(np.abs(solution) <= reach, 0.0, solution)
    a, b, c = (solution[..., degree] if degree < len(basis) else np.zeros(table.shape[:-1]) for degree in range(3))
    return [Numbers(_whole(array, scale), rest) for array in (a - b * centre + c * centre**2, b - 2 * c * centre, c)]


def _whole(array: Array, scale: float) -> Array:
    """Numbers that are whole but for float64's rounding, made whole: the slope of i − j is −1."""
    near = np.abs(array - np.round(array)) <= _ROUNDING * max(1.0, scale)
    return np.where(near, np.round(array), array)


def _splits_into(numbers: Numbers, index: Index, rows: int) -> bool:
    """Whether the numbers are a polynomial in row and column of the index seen as a grid of so many rows."""
    outer, inner = Index((rows, rows)), Index((index.size[0] // rows,) * 2)
    at = numbers.indices.index(index)
    shape = numbers.array.shape
    table: Array = numbers.array.reshape(*shape[:at], rows, -1, *shape[at + 1 :])
    split = Numbers(table, (*numbers.indices[:at], outer, inner, *numbers.indices[at + 1 :]))
    by_row = fitted(split, outer)
    return by_row is not None and all(fitted(part, inner) is not None for part in by_row)
