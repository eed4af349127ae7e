"""Adjoints of kernels: against differences, against closed forms, at hard points, and what their kernels look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlc.base.types import Type, f32, f64
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Const, Expr, Load, walk
from dlc.kernel.gradient.adjoint import adjoint
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.text import parse_kernel, print_kernel
from tests.kernel.gradient_checks import check, differences, pulled, sampled
from tests.kernel.random_kernels import random_kernel

Array = Any

KERNELS: dict[str, str] = {
    "map": "(f64[5]) -> (f64[5]) { r0[i] = sin(p0[i])*p0[i] }",
    "sum": "(f64[4,6], f64[6,5]) -> (f64[4,5]) { k<6: r0[i,j] += p0[i,k]*p1[k,j] }",
    "max": "(f64[6,5]) -> (f64[6]) { k<5: r0[i] max= p0[i,k]*p0[i,k] }",
    "min": "(f64[6,5], f64[5]) -> (f64[6]) { k<5: r0[i] min= p0[i,k]*p1[k] }",
    "extreme of what rounds": "(f64[6,5], f64[5]) -> (f64[6]) { k<5: r0[i] min= p0[i,k]-(p1[k]+p0[0,k]) }",
    "product": "(f64[3,4]) -> (f64[3]) { k<4: r0[i] *= p0[i,k]+1.5 }",
    "sum of nothing": "(f64[3,0]) -> (f64[3]) { k<0: r0[i] += p0[i,k] }",
    "two factors of one tensor": "(f64[6]) -> (f64[4]) { r0[i] = p0[i]*p0[i+2] }",
    "transpose and itself": "(f64[4,4]) -> (f64[4,4]) { r0[i,j] = p0[i,j]*p0[i,j]*p0[j,i] }",
    "diagonal": "(f64[4,4]) -> (f64[4]) { r0[i] = p0[i,i]*p0[i,0] }",
    "blur": "(f64[10,8]) -> (f64[8,8]) { r0[i,j] = (p0[i,j]+p0[i+1,j]+p0[i+2,j])/3.0 }",
    "quotient": "(f64[4], f64[4,3]) -> (f64[4]) { k<3: r0[i] += p0[i]/(p1[i,k]*p1[i,k]+1.0) }",
    "guard": "(f64[5], f64[5]) -> (f64[5]) { k<5: r0[i] += p0[k]*p1[i] if i+k < 5 and k != i }",
    "guard of data": "(f64[5], f64[5]) -> (f64[5]) { r0[i] = p0[i]*p1[i] if p0[i] > 0.0 }",
    "padding": "(f64[5]) -> (f64[7]) { r0[i] = select(i >= 1 and i < 6, p0[i-1]*p0[i-1], 1.0) }",
    "choice by axes": "(f64[4], f64[6]) -> (f64[6]) { r0[i] = select(i < 4 or i == 5, p1[i], p0[i-4]*2.0) }",
    "choice by data": "(f64[6]) -> (f64[6]) { r0[i] = select(p0[i] > 0.0, p0[i]*p0[i], sin(p0[i])) }",
    "choice by both": "(f64[6]) -> (f64[7]) { r0[i] = select(i >= 1 and p0[0] > 0.0, p0[i-1]*2.0, p0[0]*p0[0]) }",
    "data inside axes": "(f64[6]) -> (f64[7]) "
    "{ r0[i] = select(i >= 1, select(p0[i-1] > 0.0, p0[i-1]*2.0, p0[0]*p0[0]), p0[1]) }",
    "choice of choices": "(f64[6]) -> (f64[6]) "
    "{ r0[i] = select(p0[i] > 0.0, select(i < 3, p0[i]*3.0, p0[i-3]), select(p0[0] < 0.0, p0[5-i], 1.0)) }",
    "choice by an index": "(f64[5], i64[4]) -> (f64[4]) { r0[i] = select(p1[i] < 5, p0[p1[i]]*2.0, p0[0]) }",
    "gather": "(f64[5,2], i64[4]) -> (f64[4,2]) { r0[i,j] = p0[p1[i],j]*p0[p1[i],0] }",
    "scatter": "(f64[4], i64[4]) -> (f64[5]) { i<4: r0[p1[i]] += p0[i]*p0[i] }",
    "locals": "(f64[4], f64[4]) -> (f64[4]) local (f64[4], f64[]) "
    "{ t0[i] = exp(p0[i]) k<4: t1[] += t0[k]*p1[k] r0[i] = t0[i]/t1[] }",
    "softmax": "(f64[3,4]) -> (f64[3,4]) local (f64[3], f64[3,4], f64[3]) { k<4: t0[i] max= p0[i,k] "
    "t1[i,j] = exp(p0[i,j]-t0[i]) k<4: t2[i] += t1[i,k] r0[i,j] = t1[i,j]/t2[i] }",
    "result that is read": "(f64[4]) -> (f64[4], f64[4]) { r0[i] = p0[i]*p0[i] r1[i] = r0[i]*p0[0] }",
    "halves": "(f64[4], f64[3]) -> (f64[7]) { i<4: r0[i] = p0[i] i<3: r0[i+4] = p1[i]*p0[i] }",
    "guarded halves": "(f64[6], f64[6]) -> (f64[6]) { r0[i] = p0[i]*2.0 if i < 3 r0[i] = p1[i]*p0[i] if i >= 3 }",
    "overwrite": "(f64[5], f64[3]) -> (f64[5]) { r0[i] = p0[i]*p0[i] i<3: r0[i+1] = p1[i]*p0[0] }",
    "overwrite all": "(f64[5], f64[5]) -> (f64[5]) { r0[i] = p0[i]*p0[i] r0[i] = p1[i]*3.0 }",
    "overwrite a sum": "(f64[5,2], f64[5]) -> (f64[5]) { k<2: r0[i] += p0[i,k] r0[i] = p1[i] if i >= 2 }",
    "add to what is there": "(f64[5], f64[5,2]) -> (f64[5]) { r0[i] = p0[i]*p0[i] k<2: r0[i] += p1[i,k]*p0[k] }",
    "duplicates": "(f64[5], i64[4], f64[4]) -> (f64[5]) { r0[i] = p0[i] i<4: r0[p1[i]] = p2[i]*p2[i] }",
    "extreme of what is there": "(f64[5], i64[4], f64[4]) -> (f64[5]) { r0[i] = p0[i] i<4: r0[p1[i]] max= p2[i] }",
    "product with what is there": "(f64[5], i64[4], f64[4]) -> (f64[5]) { r0[i] = p0[i] i<4: r0[p1[i]] *= p2[i] }",
    "all in turn": "(f64[5], i64[4], f64[4]) -> (f64[5]) { r0[i] = p0[i] i<4: r0[p1[i]] *= p2[i]*p2[i] "
    "i<4: r0[p1[i]] += p2[i] i<4: r0[p1[i]] min= p2[i]+1.0 i<4: r0[i+1] = p0[i]*p2[i] if i >= 2 }",
    "two extremes": "(f64[5,3], f64[5,2]) -> (f64[5]) { k<3: r0[i] max= p0[i,k] k<2: r0[i] max= p1[i,k]*p1[i,k] }",
    "stride": "(f64[9]) -> (f64[5]) { r0[i] = p0[2*i]*p0[i] }",
    "quotients of axes": "(f64[4,3]) -> (f64[12]) { r0[i] = p0[i//3,i % 3]*p0[i % 4,0] }",
    "lost axis": "(f64[3]) -> (f64[9]) { r0[i] = p0[i//3]*p0[i % 3] }",
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("seed", range(3))
def test_the_adjoint_equals_differences(name: str, seed: int) -> None:
    kernel = parse_kernel("kernel" + KERNELS[name])
    assert kernel_problems(kernel) == ()
    check(kernel, seed, below=6 if name == "choice by an index" else 4)


@pytest.mark.parametrize("name", [n for n in KERNELS if n not in ("guard of data", "sum of nothing")])
def test_adjoints_are_kernels_that_have_adjoints(name: str) -> None:
    kernel = parse_kernel("kernel" + KERNELS[name])
    wrt = [k for k, p in enumerate(kernel.params) if p.dtype.is_float]
    first = adjoint(kernel, wrt).kernel
    assert kernel_problems(first) == ()
    assert Kernel.canonical(first.params, first.results, first.nests, first.locals) == first
    assert parse_kernel(print_kernel(first)) == first
    check(first, 1, below=5, rtol=2e-5, atol=1e-6)


def test_parameters_are_what_is_read_in_order() -> None:
    kernel = parse_kernel("kernel(f32[4], f32[4], f32[4]) -> (f32[4], f32[4]) { r0[i] = p0[i]*p2[i] r1[i] = p1[i] }")
    found = adjoint(kernel, (1, 0))
    assert (found.primals, found.cotangents, found.scattered) == ((2,), (0, 1), ())
    assert print_kernel(found.kernel).splitlines() == [
        "kernel(f32[4], f32[4], f32[4]) -> (f32[4], f32[4]) {",
        "  r0[i] = p2[i]",
        "  r1[i] = p1[i]*p0[i]",
        "}",
    ]


def test_what_nothing_depends_on_gets_zeros_without_a_loop() -> None:
    kernel = parse_kernel("kernel(f32[2], f32[3], i32[3]) -> (f32[3]) { r0[i] = floor(p1[i])*f32(p2[i]) }")
    found = adjoint(kernel, (0, 1, 2))
    assert found.kernel.nests == ()
    assert found.primals == found.cotangents == ()
    assert [r.type for r in found.kernel.results] == [p.type for p in kernel.params]
    assert [r.any() for r in run_kernel(found.kernel, [])] == [False, False, False]


def test_a_matrix_product_has_products_as_derivatives() -> None:
    kernel = parse_kernel("kernel(f32[4,16], f32[16,8]) -> (f32[4,8]) { k<16: r0[i,j] += p0[i,k]*p1[k,j] }")
    assert print_kernel(adjoint(kernel, (0, 1)).kernel).splitlines()[1:-1] == [
        "  k<8: r0[i,j] += p2[i,k]*p1[j,k]",
        "  k<4: r1[i,j] += p2[k,j]*p0[k,i]",
    ]


def test_only_subscripts_that_are_data_stay_scatters() -> None:
    assert adjoint(parse_kernel("kernel" + KERNELS["blur"]), (0,)).scattered == ()
    (reason, *_) = adjoint(parse_kernel("kernel" + KERNELS["gather"]), (0,)).scattered
    assert "data" in reason


def test_an_extreme_is_compared_with_values_that_were_computed_once() -> None:
    """Another loop may round differently, and then nothing would equal the extreme."""
    kernel = parse_kernel("kernel(f32[4,8], f32[8]) -> (f32[4]) { k<8: r0[i] max= p0[i,k]*p1[k]+p1[0] }")
    nests = adjoint(kernel, (0, 1)).kernel.nests
    asked = [x.args for n in nests for x in walk(n.body) if isinstance(x, Apply) and x.fn == "eq"]
    assert asked
    assert all(isinstance(a, Load) for args in asked for a in args)
    pure = parse_kernel("kernel(f32[4,8]) -> (f32[4]) { k<8: r0[i] max= p0[i,k] }")
    assert all(p.shape == (4,) for p in adjoint(pure, (0,)).kernel.locals)


def test_a_value_that_is_only_needed_at_its_place_is_not_stored() -> None:
    kernel = parse_kernel("kernel(f32[4]) -> (f32[4]) local (f32[4]) { t0[i] = p0[i]*2.0 r0[i] = t0[i]*t0[i] }")
    assert adjoint(kernel, (0,)).kernel.locals == ()


def test_values_that_derivatives_do_not_read_are_not_computed() -> None:
    kernel = parse_kernel(
        "kernel(f32[4,9], f32[4]) -> (f32[4]) local (f32[4]) { k<9: t0[i] += exp(p0[i,k]) r0[i] = t0[i]+p1[i]*p1[i] }"
    )
    found = adjoint(kernel, (1,)).kernel
    assert len(found.nests) == 1
    assert found.locals == ()


# ---- hard points: column "choose" of the table of conventions ----
HARD: list[tuple[str, str, list[Array], list[list[float]]]] = [
    ("max shares ties", "(f64[3]) -> (f64[]) { k<3: r0[] max= p0[k] }", [[1, 3, 3]], [[0, 0.5, 0.5]]),
    ("min shares ties", "(f64[3]) -> (f64[]) { k<3: r0[] min= p0[k] }", [[1, 1, 3]], [[0.5, 0.5, 0]]),
    ("one zero", "(f64[3]) -> (f64[]) { k<3: r0[] *= p0[k] }", [[2, 0, 3]], [[0, 6, 0]]),
    ("two zeros", "(f64[3]) -> (f64[]) { k<3: r0[] *= p0[k] }", [[2, 0, 0]], [[0, 0, 0]]),
    ("no zero", "(f64[3]) -> (f64[]) { k<3: r0[] *= p0[k] }", [[2, 5, 3]], [[15, 6, 10]]),
    (
        "running products with a zero",
        "(f64[3]) -> (f64[3]) { k<3: r0[i] *= p0[k] if k <= i }",
        [[2, 0, 3]],
        [[1, 8, 0]],
    ),
    (
        "infinite derivative of a branch that is not taken",
        "(f64[2]) -> (f64[2]) { r0[i] = select(p0[i] > 0.0, sqrt(p0[i]), 0.0) }",
        [[0, 4]],
        [[0, 0.25]],
    ),
    (
        "infinite derivative outside of a guard",
        "(f64[2]) -> (f64[2]) { r0[i] = sqrt(p0[i]) if i > 0 }",
        [[0, 4]],
        [[0, 0.25]],
    ),
    (
        "gather of one element twice",
        "(f64[2], i64[3]) -> (f64[3]) { r0[i] = p0[p1[i]] }",
        [[5, 6], [1, 1, 0]],
        [[1, 2]],
    ),
    (
        "the last of duplicates stays",
        "(f64[2], i64[2], f64[2]) -> (f64[2]) { r0[i] = p0[i] i<2: r0[p1[i]] = p2[i] }",
        [[5, 6], [1, 1], [7, 8]],
        [[1, 0], [0, 1]],
    ),
    (
        "sums into duplicates",
        "(f64[2], i64[2], f64[2]) -> (f64[2]) { r0[i] = p0[i] i<2: r0[p1[i]] += p2[i] }",
        [[5, 6], [1, 1], [7, 8]],
        [[1, 1], [1, 1]],
    ),
    (
        "the extreme of what was there and two updates that equal it",
        "(f64[1], i64[2], f64[2]) -> (f64[1]) { r0[i] = p0[i] i<2: r0[p1[i]] max= p2[i] }",
        [[3], [0, 0], [3, 3]],
        [[1 / 3], [1 / 3, 1 / 3]],
    ),
    (
        "the product of a zero that was there",
        "(f64[1], i64[2], f64[2]) -> (f64[1]) { r0[i] = p0[i] i<2: r0[p1[i]] *= p2[i] }",
        [[0], [0, 0], [2, 4]],
        [[8], [0, 0]],
    ),
    (
        "the diagonal of a matrix",
        "(f64[2,2]) -> (f64[]) { k<2: r0[] += p0[k,k] }",
        [[[1, 2], [3, 4]]],
        [[1, 0, 0, 1]],
    ),
    ("one tensor as both factors", "(f64[2]) -> (f64[]) { k<2: r0[] += p0[k]*p0[k] }", [[3, 4]], [[6, 8]]),
    ("relu at zero by select", "(f64[3]) -> (f64[3]) { r0[i] = select(p0[i] > 0.0, p0[i], 0.0) }", [[-1, 0, 1]],
     [[0, 0, 1]]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "args", "expected"), [h[1:] for h in HARD], ids=[h[0] for h in HARD])
def test_hard_points(text: str, args: list[Array], expected: list[list[float]]) -> None:
    kernel = parse_kernel("kernel" + text)
    arrays = [np.asarray(a, p.dtype.numpy) for a, p in zip(args, kernel.params, strict=True)]
    wrt = [k for k, p in enumerate(kernel.params) if p.dtype.is_float]
    got = pulled(kernel, arrays, [np.ones(r.shape) for r in kernel.results], wrt)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g.ravel(), e, rtol=1e-14)


# ---- second order ----
def test_the_second_derivative_of_a_quadratic_form() -> None:
    """f = x'Ax: ∇f = (A + A')x, and the gradient of ⟨∇f, v⟩ is (A + A')v."""
    kernel = parse_kernel("kernel(f64[5], f64[5,5]) -> (f64[]) { j<5 k<5: r0[] += p0[j]*p1[j,k]*p0[k] }")
    rng = np.random.default_rng(3)
    x, a, v = rng.standard_normal(5), rng.standard_normal((5, 5)), rng.standard_normal(5)
    first = adjoint(kernel, (0,))
    assert (first.primals, first.cotangents) == ((0, 1), (0,))
    np.testing.assert_allclose(run_kernel(first.kernel, [x, a, np.array(1.0)])[0], (a + a.T) @ x, rtol=1e-13)
    second = adjoint(first.kernel, (0,))
    assert second.scattered == ()
    args = [(x, a, np.array(1.0))[k] for k in second.primals]
    np.testing.assert_allclose(run_kernel(second.kernel, [*args, v])[0], (a + a.T) @ v, rtol=1e-13)


def test_three_orders_of_a_power() -> None:
    kernel = parse_kernel("kernel(f64[3]) -> (f64[3]) { r0[i] = pow(p0[i], 4.0) }")
    x, values = np.array([0.5, -1.0, 2.0]), [np.array([0.5, -1.0, 2.0])]
    for expected in (4 * x**3, 12 * x**2, 24 * x):
        found = adjoint(kernel, (0,))
        kernel = found.kernel
        values = [values[k] for k in found.primals] + [np.ones(3)] * len(found.cotangents)
        np.testing.assert_allclose(run_kernel(kernel, values)[0], expected, rtol=1e-12)


# ---- random kernels ----
def in_double(kernel: Kernel) -> Kernel:
    """The kernel over f64 instead of f32, its casts too."""

    def change(e: Expr) -> Expr:
        match e:
            case Apply("f32", (Const(value),)):
                return Const(float(value))
            case Apply(fn, args):
                return Apply(fn, tuple(change(a) for a in args))
            case Load(name, index):
                return Load(name, tuple(change(i) for i in index))
            case _:
                return e

    def wide(params: tuple[Param, ...]) -> tuple[Param, ...]:
        return tuple(Param(p.name, Type(f64, p.shape)) for p in params)

    nests = tuple(Nest(n.out, n.index, n.axes, change(n.body), n.reduce, n.where) for n in kernel.nests)
    return Kernel(wide(kernel.params), wide(kernel.results), wide(kernel.locals), nests)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30))
def test_random_kernels(seed: int) -> None:
    kernel = random_kernel(seed)
    if kernel.params[0].dtype is not f32 or sum(n.points for n in kernel.nests) > 4000:
        return
    kernel = in_double(kernel)
    args, seeds = sampled(kernel, seed)
    args = [a * 0.5 for a in args]
    assume(all(np.abs(r).max(initial=0) < 1e4 for r in run_kernel(kernel, args)))  # exp of exp may be any number
    wrt = [k for k, p in enumerate(kernel.params) if p.type.size <= 40]
    for k, got in zip(wrt, pulled(kernel, args, seeds, wrt), strict=True):
        expected = differences(kernel, args, seeds, k)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * (1 + np.abs(expected).max(initial=0)))
