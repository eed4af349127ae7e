"""The Smith normal form of an integer matrix: U·A·V = S with U and V unimodular and S diagonal, s_1 | s_2 | ….

The integer solutions of A·x = b are x = V·y with s_i·y_i = (U·b)_i: divisibility where s_i > 1, consistency where
s_i = 0, and one free integer for every column beyond the rank. (H. J. S. Smith, On systems of linear indeterminate
equations and congruences, 1861.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Matrix: TypeAlias = tuple[tuple[int, ...], ...]
_Rows: TypeAlias = list[list[int]]


@dataclass(frozen=True)
class Smith:
    """U·A·V = S.

    Attributes:
        u: Unimodular, as many rows as A.
        s: Diagonal, of A's shape; entries are not negative and each divides the next.
        v: Unimodular, as many rows as A has columns; its columns are short (no null column shortens another one).
        v_inverse: The inverse of v: what the new unknowns are in terms of the old ones.
    """

    u: Matrix
    s: Matrix
    v: Matrix
    v_inverse: Matrix

    @property
    def factors(self) -> tuple[int, ...]:
        """The diagonal entries that are not zero: their number is the rank."""
        return tuple(row[k] for k, row in enumerate(self.s) if k < len(row) and row[k])


def smith(matrix: Sequence[Sequence[int]]) -> Smith:
    """The Smith normal form of a matrix of Python integers; exact at any size of number."""
    a = [list(row) for row in matrix]
    height, width = len(a), len(a[0]) if a else 0
    u, v, w = _unit(height), _unit(width), _unit(width)
    for k in range(min(height, width)):
        while _pivot(a, u, v, w, k) and not (_clear(a, u, v, w, k) and _divides_rest(a, u, k)):
            pass
        if a[k][k] < 0:
            _add_row(a, k, k, -2)
            _add_row(u, k, k, -2)
    _shorten(v, w, sum(map(any, a)))
    return Smith(_freeze(u), _freeze(a), _freeze(v), _freeze(w))


def product(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> Matrix:
    """The matrix product of integer matrices."""
    columns = tuple(zip(*b, strict=True))
    return tuple(tuple(sum(x * y for x, y in zip(row, c, strict=True)) for c in columns) for row in a)


def _unit(n: int) -> _Rows:
    return [[int(i == j) for j in range(n)] for i in range(n)]


def _freeze(a: _Rows) -> Matrix:
    return tuple(map(tuple, a))


def _add_row(a: _Rows, to: int, source: int, factor: int) -> None:
    a[to] = [x + factor * y for x, y in zip(a[to], a[source], strict=True)]


def _add_column(a: _Rows, to: int, source: int, factor: int) -> None:
    for row in a:
        row[to] += factor * row[source]


def _pivot(a: _Rows, u: _Rows, v: _Rows, w: _Rows, k: int) -> bool:
    """Bring the smallest entry of the rest to place (k, k); False when the rest is zero."""
    entries = [(abs(x), i, j) for i, row in enumerate(a) for j, x in enumerate(row) if i >= k and j >= k and x]
    if not entries:
        return False
    _, i, j = min(entries)
    a[k], a[i] = a[i], a[k]
    u[k], u[i] = u[i], u[k]
    for rows in (a, v):
        for row in rows:
            row[k], row[j] = row[j], row[k]
    w[k], w[j] = w[j], w[k]
    return True


def _clear(a: _Rows, u: _Rows, v: _Rows, w: _Rows, k: int) -> bool:
    """Subtract multiples of the pivot's row and column; True when both are zero beside it."""
    for i in range(k + 1, len(a)):
        factor = -(a[i][k] // a[k][k])
        _add_row(a, i, k, factor)
        _add_row(u, i, k, factor)
    for j in range(k + 1, len(a[k])):
        factor = -(a[k][j] // a[k][k])
        _add_column(a, j, k, factor)
        _add_column(v, j, k, factor)
        _add_row(w, k, j, -factor)  # the inverse of adding columns of v
    return not any(a[k][k + 1 :]) and not any(row[k] for row in a[k + 1 :])


def _divides_rest(a: _Rows, u: _Rows, k: int) -> bool:
    """Whether the pivot divides all that is left; otherwise a row that it does not divide is added to its own."""
    for i in range(k + 1, len(a)):
        if any(x % a[k][k] for x in a[i][k + 1 :]):
            _add_row(a, k, i, 1)
            _add_row(u, k, i, 1)
            return False
    return True


def _shorten(v: _Rows, w: _Rows, rank: int) -> None:
    """Subtract multiples of the null columns of v from all others as long as that makes one shorter.

    A·V stays as it is. Short columns give small coefficients, and these small numbers of points that guards reject.
    """
    columns = [list(c) for c in zip(*v, strict=True)]
    changed = True
    while changed:
        changed = False
        for k, column in enumerate(columns):
            for j in range(rank, len(columns)):
                null = columns[j]
                norm = sum(x * x for x in null)
                factor = (2 * sum(x * y for x, y in zip(column, null, strict=True)) + norm) // (2 * norm)
                shorter = [x - factor * y for x, y in zip(column, null, strict=True)]
                if k != j and sum(x * x for x in shorter) < sum(x * x for x in column):
                    columns[k] = column = shorter
                    _add_row(w, j, k, factor)
                    changed = True
    for j in range(rank, len(columns)):  # loops along null columns run upwards
        if sum(columns[j]) < 0:
            columns[j] = [-x for x in columns[j]]
            w[j] = [-x for x in w[j]]
    v[:] = [list(row) for row in zip(*columns, strict=True)]
