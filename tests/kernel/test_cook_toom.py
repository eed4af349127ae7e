"""Matrices of short correlations: exact, with few products, and products with them share sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dlc.kernel.cook_toom import Matrix, cook_toom, squared
from dlc.kernel.evaluate import values_over
from dlc.kernel.expr import Axis, Const, Expr, substitute
from dlc.kernel.schedules.coefficients import coefficient_expr, matrix_of, product
from dlc.kernel.schedules.winograd_estimate import algorithms, sums
from dlc.kernel.simplify import simplify


def times(matrix: Matrix, x: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, x, strict=True)), start=Fraction(0)) for row in matrix]


@pytest.mark.parametrize(("outputs", "taps"), [(2, 3), (4, 3), (2, 5), (4, 5), (2, 7), (3, 2), (3, 3), (1, 3), (5, 1)])
def test_a_correlation_exactly(outputs: int, taps: int) -> None:
    f = cook_toom(outputs, taps)
    random = np.random.default_rng(0)
    data, filter = ([Fraction(int(x)) for x in random.integers(-9, 9, n)] for n in (f.size, taps))
    products = [a * b for a, b in zip(times(f.input, data), times(f.filter, filter), strict=True)]
    want = [sum(data[i + k] * filter[k] for k in range(taps)) for i in range(outputs)]
    assert times(f.output, products) == want
    assert f.growth >= 1


def test_too_many_points() -> None:
    with pytest.raises(ValueError, match=r"F\(6, 4\) needs 8 points, there are 7"):
        cook_toom(6, 4)


def test_larger_tiles_are_less_exact() -> None:
    assert cook_toom(2, 3).growth == pytest.approx(8 / 3)
    assert cook_toom(4, 3).growth == pytest.approx(16)
    assert cook_toom(2, 5).growth < cook_toom(4, 5).growth


@pytest.mark.parametrize(("taps", "outputs"), [(3, [2, 4]), (5, [2, 4]), (7, [2])])
def test_tiles_for_a_window(taps: int, outputs: list[int]) -> None:
    assert [f.outputs for f in algorithms(taps)] == outputs


@pytest.mark.parametrize(("outputs", "taps"), [(2, 3), (4, 3), (4, 5)])
def test_a_matrix_as_an_expression(outputs: int, taps: int) -> None:
    f = cook_toom(outputs, taps)
    for matrix in (f.input, f.output):
        row, column = Axis("i", len(matrix)), Axis("k", len(matrix[0]))
        e = coefficient_expr(matrix, row, column)
        assert matrix_of(e, row, column) == matrix
        assert matrix_of(e * Axis("j", 2), row, column) is None
        assert simplify(substitute(e, {row: Const(0), column: Const(0)})) == Const(float(matrix[0][0]))


@pytest.mark.parametrize(("outputs", "taps"), [(2, 3), (4, 3), (4, 5)])
def test_a_product_with_a_matrix(outputs: int, taps: int) -> None:
    f = cook_toom(outputs, taps)
    for matrix in (f.input, f.output, f.filter, squared(f.input)):
        x = [Fraction(k * k + 1, k + 2) for k in range(len(matrix[0]))]
        found = product(matrix, [Const(float(v)) for v in x], lambda e: Const(float(_value(e))))
        largest = max(sum(abs(a * b) for a, b in zip(row, x, strict=True)) for row in matrix)
        errors = [abs(_value(e) - float(v)) for e, v in zip(found, times(matrix, x), strict=True)]
        assert max(errors) <= 1e-6 * largest


def test_sums_are_shared() -> None:
    f = cook_toom(4, 3)
    assert sums(f.input) < 6 + 6 + 1  # two pairs of rows by two sums each, beside the six results
    assert sums(f.output) == 4 + 4  # two pairs of columns


def _value(e: Expr) -> float:
    return float(values_over(e, {}))
