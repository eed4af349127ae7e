"""The derivative of every scalar function: against differences, and at the points where it is a choice."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.scalar import SCALARS
from dlc.kernel.text import parse_kernel
from tests.kernel.gradient_checks import check, pulled

FUNCTIONS = [s.name for s in SCALARS.values() if s.rule == "same" and s.domain in ("number", "float")]
# (offset, scale) of standard normal arguments where a function is defined on a part of the line.
PLACES = {"log": (3, 0.4), "log1p": (1, 0.2), "sqrt": (3, 0.4), "acosh": (3, 0.4), "asin": (0, 0.2), "acos": (0, 0.2),
          "atanh": (0, 0.2), "pow": (2, 0.3), "mod": (2.6, 0.2), "fmod": (2.6, 0.2)}  # fmt: skip


def kernel_of(fn: str, arity: int, dtype: str = "f64", size: int = 4) -> str:
    types, loads = ", ".join([f"{dtype}[{size}]"] * arity), ", ".join(f"p{k}[i]" for k in range(arity))
    return f"kernel({types}) -> ({dtype}[{size}]) {{ r0[i] = {fn}({loads}) }}"


def gradient(fn: str, *at: float) -> list[float]:
    kernel = parse_kernel(kernel_of(fn, len(at), size=1))
    found = pulled(kernel, [np.array([x], float) for x in at], [np.ones(1)], range(len(at)))
    return [float(g[0]) for g in found]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_floats_has_a_derivative_or_goes_in_steps(name: str) -> None:
    found = SCALARS[name]
    assert (found.grad is None) == found.steps
    assert not found.steps or found.name in ("sign", "floor", "ceil", "round")


def test_nothing_else_has_a_derivative() -> None:
    assert [s.name for s in SCALARS.values() if s.grad and s.name not in FUNCTIONS] == []


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_derivatives_equal_differences(name: str, seed: int) -> None:
    found = SCALARS[name]
    offset, scale = PLACES.get(found.name, (0, 1))
    arguments = ", ".join(f"p{k}[i]*{float(scale)}+{float(offset + 0.4 * k)}" for k in range(found.arity))
    types = ", ".join(["f64[4]"] * found.arity)
    check(parse_kernel(f"kernel({types}) -> (f64[4]) {{ r0[i] = {found.name}({arguments}) }}"), seed, atol=1e-8)


CHOICES: list[tuple[str, tuple[float, ...], tuple[float, ...]]] = [
    ("abs", (0,), (0,)),
    ("sqrt", (0,), (math.inf,)),
    ("max", (2, 2), (0.5, 0.5)),
    ("min", (2, 2), (0.5, 0.5)),
    ("max", (1, 2), (0, 1)),
    ("min", (1, 2), (1, 0)),
    ("pow", (0, 0), (0, 0)),
    ("pow", (0, 0.5), (math.inf, 0)),
    ("pow", (0, 2), (0, 0)),
    ("pow", (3, 0), (0, math.log(3))),
    ("pow", (-2, 3), (12, math.nan)),
    ("mod", (5, 3), (1, -1)),
    ("mod", (-5, 3), (1, 2)),
    ("fmod", (5, 3), (1, -1)),
    ("fmod", (-5, 3), (1, 1)),
    ("acos", (1,), (-math.inf,)),
    ("asin", (1,), (math.inf,)),
    ("round", (0.5,), (0,)),
    ("floor", (1,), (0,)),
    ("ceil", (1,), (0,)),
    ("sign", (0,), (0,)),
]


@pytest.mark.parametrize(("fn", "at", "expected"), CHOICES)
def test_what_is_chosen_where_there_is_no_derivative(
    fn: str, at: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    np.testing.assert_allclose(gradient(fn, *at), expected, rtol=1e-12)


@pytest.mark.parametrize(("power", "expected"), [(0, 0.0), (1, 1.0), (2, 6.0), (0.5, 0.5 / math.sqrt(3)), (-1, -1 / 9)])
def test_powers_by_a_literal(power: float, expected: float) -> None:
    kernel = parse_kernel(f"kernel(f64[1]) -> (f64[1]) {{ r0[i] = pow(p0[i], {power}) }}")
    (got,) = pulled(kernel, [np.array([3.0])], [np.ones(1)], [0])
    np.testing.assert_allclose(got, [expected], rtol=1e-12)


@pytest.mark.parametrize("power", ["0", "0.0"])
def test_a_power_of_zero_is_constant_at_zero(power: str) -> None:
    kernel = parse_kernel(f"kernel(f64[1]) -> (f64[1]) {{ r0[i] = pow(p0[i], {power}) }}")
    assert pulled(kernel, [np.zeros(1)], [np.ones(1)], [0])[0].tolist() == [0]


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_literals_of_derivatives_take_the_type_of_the_data(name: str, dtype: str) -> None:
    found = SCALARS[name]
    kernel = parse_kernel(kernel_of(found.name, found.arity, dtype))
    args = [np.full(4, 0.5, kernel.params[0].dtype.numpy)] * found.arity
    for got in pulled(kernel, args, [np.ones(4, kernel.params[0].dtype.numpy)], range(found.arity)):
        assert got.dtype == kernel.params[0].dtype.numpy


def test_casts_between_floats_carry_the_cotangent_back() -> None:
    kernel = parse_kernel("kernel(f32[3], f64[3]) -> (f64[3]) { r0[i] = f64(p0[i])*p1[i] }")
    args = [np.array([1, 2, 3], "f"), np.array([0.1, 0.2, 0.3])]
    single, double = pulled(kernel, args, [np.ones(3)], [0, 1])
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, args[1].astype("f"))
    np.testing.assert_array_equal(double, args[0].astype("d"))


def test_casts_to_integers_end_a_derivative() -> None:
    kernel = parse_kernel("kernel(f64[3]) -> (f64[3]) { r0[i] = f64(i32(p0[i]))*p0[i] }")
    args = [np.array([1.5, 2.5, -3.5])]
    assert run_kernel(kernel, args)[0].tolist() == [1.5, 5, 10.5]
    assert pulled(kernel, args, [np.ones(3)], [0])[0].tolist() == [1, 2, -3]
