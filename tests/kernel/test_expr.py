"""Construction of expressions folds exactly what integer arithmetic allows."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.types import DTYPES, bool_, f32, i32, i64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, both, loads, map_loads, select, substitute
from dlc.kernel.scalar import SCALARS, result_dtype

M, J = Axis("i", 4), Axis("j", 3)
X = Load("x", (M,))


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (M + 0, M),
        (0 + M, M),
        (M - 0, M),
        (M * 1, M),
        (1 * M, M),
        (M // 1, M),
        (M + 2 + 3, apply("add", M, 5)),
        (M - 2, apply("add", M, -2)),
        (M + 2 - 2, M),
        (apply("add", 2, 3), Const(5)),
        (apply("floordiv", -7, 2), Const(-4)),
        (apply("mod", -7, 2), Const(1)),
        (apply("lt", 1, 2), Const(True)),
        (apply("and", Const(True), M < 2), M < 2),
        (apply("and", M < 2, Const(True)), M < 2),
        (select(Const(True), M, J), M),
        (select(Const(False), M, J), J),
    ],
)
def test_integer_identities_are_folded(built: Expr, expected: Expr) -> None:
    assert built == expected


@pytest.mark.parametrize(
    "kept",
    [X + 0.0, X * 0.0, X * 1.0, X - 0.0, 0.0 * X, apply("add", 1.0, 2.0), apply("floordiv", 1, 0), apply("mod", 1, -2)],
)
def test_floating_point_and_undefined_integer_arithmetic_stay(kept: Expr) -> None:
    assert isinstance(kept, Apply)


def test_literals_that_python_calls_equal_are_different() -> None:
    values = [0, 0.0, -0.0, False, 1, 1.0, True, math.nan, math.inf]
    assert len({Const(v) for v in values}) == len(values)
    assert Const(math.nan) == Const(float("nan"))


integers = st.integers(-9, 9)


@given(st.sampled_from(["add", "sub", "mul", "min", "max", "eq", "ne", "lt", "le", "gt", "ge"]), integers, integers)
def test_folded_literals_have_the_value_of_the_function(fn: str, a: int, b: int) -> None:
    folded = apply(fn, a, b)
    assert isinstance(folded, Const)
    assert folded.value == SCALARS[fn].value(a, b)


def test_substitution_is_simultaneous_and_keeps_unchanged_parts() -> None:
    e = (M + J) * X
    assert substitute(e, {M: J, J: M}) == (J + M) * Load("x", (J,))
    assert substitute(e, {Axis("k", 2): J}) is e
    assert map_loads(e, lambda load: load) is e
    assert map_loads(Load("x", (Load("k", (M,)),)), lambda x: Load(x.param + "2", x.index)) == Load(
        "x2", (Load("k2", (M,)),)
    )


def test_queries_come_in_reading_order() -> None:
    e = Load("b", (J,)) + Load("a", (M, Load("c", (J,))))
    assert [x.param for x in loads(e)] == ["b", "a", "c"]
    assert axes_in(e) == (J, M)
    assert both(None, None) is None
    assert both(None, M < 2) == (M < 2)


@pytest.mark.parametrize("name", sorted(SCALARS))
def test_every_function_has_a_result_type_for_its_domain(name: str) -> None:
    scalar = SCALARS[name]
    domain = {"float": [f32], "int": [i32], "bool": [bool_], "number": [f32, i32], "any": list(DTYPES.values())}
    for dtype in domain[scalar.domain]:
        if scalar.rule == "bits" and scalar.to is not None and scalar.to.bits != dtype.bits:
            with pytest.raises(TypeError, match="bits"):
                result_dtype(name, (dtype,))
            continue
        got = result_dtype(name, (dtype,) * scalar.arity)
        assert got == (bool_ if scalar.rule == "bool" else scalar.to or dtype)


def test_types_do_not_mix() -> None:
    for fn, args in itertools.product(["add", "lt"], [(f32, i32), (i32, i64)]):
        with pytest.raises(TypeError, match="of different types"):
            result_dtype(fn, args)
    with pytest.raises(TypeError, match="exp is defined for floating point, not i32"):
        result_dtype("exp", (i32,))
    with pytest.raises(TypeError, match="floordiv is defined for integers, not f32"):
        result_dtype("floordiv", (f32, None))
    assert result_dtype("add", (None, i32)) == i32
    assert result_dtype("add", (None, None)) is None
