"""Constant matrices as expressions over two axes, and products with them as sums that share what they can.

    select(i == 0, select(k == 0, 4.0, …), …)   ↔   ((4, …), …)                  rows i, columns k
    y = M·x   →   e = x₄ - 4·x₂;  o = x₃ - 4·x₁;  y₁ = e + o;  y₂ = e - o;  …

Products with 0 disappear, those with 1 are sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from dlc.kernel.cook_toom import Matrix
from dlc.kernel.expr import Apply, Axis, Const, Expr, apply, axes_in, loads, select, substitute
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import simplify

MOST = 64
"""Elements of a matrix in an expression."""


def coefficient_expr(matrix: Matrix, row: Expr, column: Expr) -> Expr:
    """An expression that is the element of a matrix at two integer expressions."""
    return _chosen(row, [_chosen(column, [Const(float(x)) for x in line]) for line in matrix])


def _chosen(index: Expr, values: Sequence[Expr]) -> Expr:
    """The value at an index; equal neighbours share a test."""
    found = values[-1]
    for k in reversed(range(len(values) - 1)):
        if values[k] != values[k + 1]:
            found = select(apply("le", index, k), values[k], found)
    return found


@lru_cache(maxsize=256)  # the kernels of a network share a few
def matrix_of(e: Expr, row: Axis, column: Axis) -> Matrix | None:
    """The matrix that an expression over two axes is; None for any other expression."""
    if e_has_others(e, row, column) or row.extent * column.extent > MOST:
        return None
    rows: list[tuple[Fraction, ...]] = []
    for i in range(row.extent):
        line: list[Fraction] = []
        of_row = substitute(e, {row: Const(i)})
        for k in range(column.extent):
            match simplify(substitute(of_row, {column: Const(k)})):
                case Const(float() as value):
                    line.append(Fraction(value))
                case _:
                    return None
        rows.append(tuple(line))
    return tuple(rows)


def multiplies_constants(nest: Nest) -> bool:
    """Whether a factor of what a nest adds up is a matrix of constants.

    Such nests are transforms of tiles, whose schedule knows them by their form and by who reads them.
    """
    stack = [nest.body]
    while stack:
        match stack.pop():
            case Apply("mul", args):
                stack += args
            case e if axes_in(e) and not any(True for _ in loads(e)):
                return True
            case _:
                pass
    return False


def e_has_others(e: Expr, *axes: Axis) -> bool:
    """Whether an expression loads, or depends on other axes than these, or not on all of them."""
    return (isinstance(e, Apply) and e.has_load) or set(axes_in(e)) != set(axes)


def product(matrix: Matrix, values: Sequence[Expr], name: Callable[[Expr], Expr]) -> list[Expr]:
    """The sums of a matrix with values of which each is a variable; `name` makes a variable of an expression."""
    matrix, values = _columns_shared(matrix, values, name)
    found: dict[int, Expr] = {}
    for i, first in enumerate(matrix):
        for k, second in list(enumerate(matrix))[i + 1 :]:
            if i in found or k in found:
                continue
            even = tuple((a + b) / 2 for a, b in zip(first, second, strict=True))
            odd = tuple((a - b) / 2 for a, b in zip(first, second, strict=True))
            terms = sum(map(bool, first)) + sum(map(bool, second))
            if any(even) and any(odd) and sum(map(bool, even)) + sum(map(bool, odd)) < terms:
                e, o = name(_sum(even, values)), name(_sum(odd, values))
                found[i], found[k] = name(e + o), name(e - o)
    return [found[i] if i in found else name(_sum(row, values)) for i, row in enumerate(matrix)]


def _columns_shared(
    matrix: Matrix, values: Sequence[Expr], name: Callable[[Expr], Expr]
) -> tuple[Matrix, Sequence[Expr]]:
    """Columns that are equal in some rows and opposite in the others as sum and difference of their values."""
    width = len(values)
    for i in range(width):
        for k in range(i + 1, width):
            pairs = [(row[i], row[k]) for row in matrix if row[i] or row[k]]
            alike = sum(a == b for a, b in pairs)
            if 0 < alike < len(pairs) and all(abs(a) == abs(b) for a, b in pairs):
                both = name(values[i] + values[k]), name(values[i] - values[k])
                rest = [x for x in range(width) if x not in (i, k)]
                rows = tuple(
                    (
                        *(row[x] for x in rest),
                        row[i] if row[i] == row[k] else Fraction(0),
                        row[i] if row[i] != row[k] else Fraction(0),
                    )
                    for row in matrix
                )
                # The new columns are never alike in any row: each pair is met once.
                changed, others = _columns_shared(tuple(r[:-2] for r in rows), [values[x] for x in rest], name)
                joined = tuple((*a, *b[-2:]) for a, b in zip(changed, rows, strict=True))
                return joined, [*others, *both]
    return matrix, values


def _sum(row: Sequence[Fraction], values: Sequence[Expr]) -> Expr:
    """Σ row[k]·values[k], positive terms first; of two products compilers could fuse either one with their sum.

    So a power of two among the factors is taken out of all, which changes no digit.
    """
    sizes = {abs(c) for c in row if c}
    if sum(map(bool, row)) > 1 and 1 not in sizes and (powers := sorted(filter(_is_power_of_two, sizes))):
        return apply("mul", _sum([c / powers[0] for c in row], values), float(powers[0]))
    terms = sorted(((c, x) for c, x in zip(row, values, strict=True) if c), key=lambda t: (t[0] < 0, abs(t[0]) != 1))
    if not terms:
        return Const(0.0)
    (c, first), *rest = ((c, x if abs(c) == 1 else apply("mul", x, float(abs(c)))) for c, x in terms)
    total = first if c > 0 else apply("neg", first)
    for c, term in rest:
        total = total + term if c > 0 else total - term
    return total


def _is_power_of_two(x: Fraction) -> bool:
    return all(n & (n - 1) == 0 for n in (x.numerator, x.denominator))
