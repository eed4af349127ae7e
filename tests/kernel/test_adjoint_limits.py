"""What adjoints refuse: expressions beyond their limits, kernels out of order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.types import Type, f32, i32
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Expr, Load, apply, map_loads
from dlc.kernel.gradient.adjoint import adjoint
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.text import parse_kernel
from tests.kernel.gradient_checks import pulled


def test_a_tensor_that_is_read_before_it_is_finished_is_refused() -> None:
    kernel = parse_kernel("kernel(f32[4]) -> (f32[4], f32[4]) { r0[i] = p0[i] r1[i] = r0[i] r0[i] += p0[i] }")
    with pytest.raises(DlcError, match="nest 1 reads r0, which nest 2 still writes"):
        adjoint(kernel, (0,))


def chain(fn: str, count: int) -> Kernel:
    params = tuple(Param(f"p{k}", Type(f32, ())) for k in range(count))
    body: Expr = params[0][()]
    for p in params[1:]:
        body = apply(fn, body, p[()])
    return Kernel.canonical(params, (Param("r", Type(f32, ())),), (Nest("r", (), (), body),))


def last(kernel: Kernel) -> Kernel:
    """The kernel with the other parameters as integers, which have no derivative."""
    *others, p = kernel.params
    integers = {q.name: apply("f32", Load(q.name, ())) for q in others}
    nests = tuple(replace(n, body=map_loads(n.body, lambda x: integers.get(x.param, x))) for n in kernel.nests)
    return Kernel((*(Param(q.name, Type(i32, ())) for q in others), p), kernel.results, (), nests)


def nested(fn: str, count: int) -> Kernel:
    param = Param("p", Type(f32, ()))
    body: Expr = param[()]
    for _ in range(count):
        body = apply(fn, body)
    return Kernel.canonical((param,), (Param("r", Type(f32, ())),), (Nest("r", (), (), body),))


def wide(count: int) -> Kernel:
    """A balanced product: shallow, with a derivative as large as the square of its factors."""

    def product(loads: tuple[Expr, ...]) -> Expr:
        half = len(loads) // 2
        return apply("mul", product(loads[:half]), product(loads[half:])) if half else loads[0]

    params = tuple(Param(f"p{k}", Type(f32, ())) for k in range(count))
    body = product(tuple(p[()] for p in params))
    return Kernel.canonical(params, (Param("r", Type(f32, ())),), (Nest("r", (), (), body),))


@pytest.mark.parametrize("fn", ["mul", "add", "sub", "div"])
def test_long_chains_stay_within_the_limits(fn: str) -> None:
    kernel = chain(fn, 60)
    args = [np.asarray(1 + 0.01 * k, np.float32) for k in range(60)]
    got = pulled(kernel, args, [np.asarray(1, np.float32)], range(60))
    value = float(run_kernel(kernel, args)[0])
    wanted = {"mul": value / float(args[5]), "div": -value / float(args[5]), "add": 1, "sub": -1}[fn]
    np.testing.assert_allclose(got[5], wanted, rtol=1e-4)


@pytest.mark.parametrize(("fn", "count"), [("mul", 80), ("div", 60)])
def test_the_longest_chains_are_differentiated(fn: str, count: int) -> None:
    found = adjoint(chain(fn, count), range(count))
    assert len(found.kernel.results) == count


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (chain("mul", 300), "an expression is 300 operations deep, derivatives are taken of 256"),
        (nested("erf", 198), "the derivative nests its operations deeper than 256"),
        (last(chain("div", 199)), "the derivative nests its operations too deep for the text"),
        (wide(250), "the derivative has more than 100000 operations"),
    ],
    ids=["deep", "deeper", "deep text", "large"],
)
def test_derivatives_that_grow_too_large_are_an_error(kernel: Kernel, message: str) -> None:
    with pytest.raises(DlcError, match=message) as caught:
        adjoint(kernel, range(len(kernel.params)))
    assert caught.value.exit_code is ExitCode.LIMIT


def test_parameters_are_asked_for_once() -> None:
    with pytest.raises(ValueError, match="not distinct"):
        adjoint(parse_kernel("kernel(f32[4]) -> (f32[4]) { r0[i] = p0[i] }"), (0, 0))
