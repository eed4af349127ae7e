"""Short correlations by few products: the matrices of Cook and Toom, which Winograd proved to be optimal.

    y = Aᵀ·((G·g) ⊙ (Bᵀ·d))        m outputs yᵢ = Σₖ dᵢ₊ₖ·gₖ of a filter g with r taps by m + r - 1 products

Two polynomials of degrees m - 1 and r - 1 are evaluated at m + r - 2 points and at infinity, multiplied point by point,
and interpolated; a correlation is the transpose of that. Sources: Winograd, Arithmetic Complexity of Computations,
1980; Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

Matrix: TypeAlias = tuple[tuple[Fraction, ...], ...]

POINTS = tuple(Fraction(p) for p in (0, 1, -1, 2, -2, "1/2", "-1/2"))
"""Where polynomials are evaluated, those first that make the smallest coefficients; opposite ones share sums."""


@dataclass(frozen=True)
class CookToom:
    """An algorithm F(m, r).

    Attributes:
        outputs: m.
        taps: r.
        output: Aᵀ, m rows of n = m + r - 1 coefficients.
        filter: G, n rows of r.
        input: Bᵀ, n rows of n.
    """

    outputs: int
    taps: int
    output: Matrix
    filter: Matrix
    input: Matrix

    @property
    def size(self) -> int:
        """n: products, and inputs of one application."""
        return self.outputs + self.taps - 1

    @property
    def growth(self) -> float:
        """How much further rounding can carry a result than in the plain sum: at least 1.

        max over outputs i of Σⱼ |Aᵢⱼ|·Σₖ|Gⱼₖ|·Σₗ|Bⱼₗ|, over r: intermediate values for inputs and taps of magnitude 1
        against the sum of r such products. In two dimensions it is squared.
        """
        filter_sums, input_sums = ([sum(map(abs, row)) for row in rows] for rows in (self.filter, self.input))
        totals = [
            sum(abs(a) * g * b for a, g, b in zip(row, filter_sums, input_sums, strict=True)) for row in self.output
        ]
        return float(max(totals)) / self.taps


@lru_cache
def cook_toom(outputs: int, taps: int) -> CookToom:
    """F(outputs, taps).

    Raises:
        ValueError: it needs more points than there are.
    """
    size = outputs + taps - 1
    points = POINTS[: size - 1]
    if len(points) < size - 1:
        raise ValueError(f"F({outputs}, {taps}) needs {size - 1} points, there are {len(POINTS)}")
    last = Fraction(1)
    output = tuple((*(p**i for p in points), last if i == outputs - 1 else Fraction(0)) for i in range(outputs))
    finite = [
        tuple(p**k / math.prod((p - q for q in points if q != p), start=last) for k in range(taps)) for p in points
    ]
    infinite = (*[Fraction(0)] * (taps - 1), last)
    basis = [(*_product(q for q in points if q != p), Fraction(0)) for p in points]
    return CookToom(outputs, taps, output, (*finite, infinite), (*basis, _product(points)))


def _product(roots: Iterable[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of Π (x - root), lowest degree first."""
    found = [Fraction(1)]
    for root in roots:
        found = [b - root * a for a, b in zip([*found, Fraction(0)], [Fraction(0), *found], strict=True)]
    return tuple(found)


def squared(matrix: Matrix) -> Matrix:
    """The Kronecker product of a matrix with itself: what transforms both dimensions of a tile at once."""
    return tuple(tuple(a * b for a in row for b in other) for row in matrix for other in matrix)
