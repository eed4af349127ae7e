"""Powers to a multiple of a quarter become products of roots, which processors have vectors of.

    x ** 0.75   →   √y · √√y        y = x, but 0 for -0.0 and ∞ for -∞, of which powers have no sign

A power of any exponent is a call of the C library for each element.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dlc.base.types import f32, f64
from dlc.kernel.expr import Apply, Const, Expr, Load, apply, select, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.machine import Machine

LARGEST = 2.0
"""Of larger powers the rounding of several factors adds up."""
MOST = 24
"""Nodes of an argument that may be written several times."""


def roots_for_powers(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel (see the module's equation)."""
    if machine.ordered:
        return kernel
    nests = tuple(_of_nest(n, kernel) for n in kernel.nests)
    return kernel if nests == kernel.nests else replace(kernel, nests=nests)


def _of_nest(nest: Nest, kernel: Kernel) -> Nest:
    if not any(isinstance(x, Apply) and x.fn == "pow" for x in walk(nest.body)):
        return nest
    return replace(nest, body=_of_expr(nest.body, kernel))


def _of_expr(e: Expr, kernel: Kernel) -> Expr:
    match e:
        case Load():
            return e
        case Apply("pow", (x, Const(exponent))) if kernel.dtype_of(x) in (f32, f64):
            inner = _of_expr(x, kernel)
            found = _roots(inner, float(exponent))
            return Apply("pow", (inner, Const(exponent))) if found is None else found
        case Apply(fn, args):
            return Apply(fn, tuple(_of_expr(a, kernel) for a in args))
        case _:
            return e


def _roots(x: Expr, exponent: float) -> Expr | None:
    """x ** exponent as a product; None where it has another form."""
    size = abs(exponent)
    if not size <= LARGEST or size * 4 % 1 or not size % 1 or sum(1 for _ in walk(x)) > MOST:
        return None
    # A power of -0 is 0, and one of -∞ is ∞: neither has a root.
    base = select(apply("eq", x, -math.inf), math.inf, apply("add", x, 0.0))
    root = apply("sqrt", base)
    whole, quarters = int(size), int(size % 1 * 4)
    factors = [base] * whole + [root] * (quarters >= 2) + [apply("sqrt", root)] * (quarters % 2)
    value = factors[0]
    for f in factors[1:]:
        value = value * f
    return value if exponent > 0 else apply("div", 1.0, value)
