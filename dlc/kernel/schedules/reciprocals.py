"""Quotients of many elements by one number are products with its reciprocal.

    r[i,j] = x[i,j]/√(s[i] + ε)   →   t[i] = 1/√(s[i] + ε);  r[i,j] = x[i,j]·t[i]

A division takes several times as long as a product. The quotient is rounded twice; by numbers whose reciprocals
overflow it may be infinite or NaN. Numbers that are rounded to whole ones or compared later keep their divisions:
there two neighbouring values may make all the difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace

from dlc.base.types import Type, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, loads, substitute, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.work import applied

OFTEN = 8
"""Quotients by one number from which on its reciprocal is computed."""
SEVERAL = 3
"""Quotients by one number in the text of a kernel from which on it is."""


def with_reciprocals(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel (see the module's equation), but for the rounding of quotients."""
    if not machine.reciprocals:
        return kernel
    work = _Work(kernel)
    nests = [work.changed(k) for k in range(len(kernel.nests))]
    if not work.made:
        return kernel
    out: list[Nest] = []
    for k, nest in enumerate(nests):
        out += (*work.before.get(k, ()), nest)
    return replace(kernel, nests=tuple(out), locals=(*kernel.locals, *work.made))


class _Work:
    """The reciprocals that a kernel needs.

    Attributes:
        made: Tensors of reciprocals.
        before: The nests that write them, by the position of the nest that they come before.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.made: list[Param] = []
        self.before: dict[int, list[Nest]] = {}
        self._kernel = kernel
        self._known: dict[Hashable, str] = {}
        self._texts = Counter(
            _key(x.args[1], n)[0] for n in kernel.nests if n.where is None for x in _quotients(n.body) if axes_in(x)
        )

    def changed(self, k: int) -> Nest:
        """A nest by its position, with products in the place of quotients."""
        nest = self._kernel.nests[k]
        if nest.where is not None or not any(x.fn == "div" for x in applied(nest.body)) or not smooth(self._kernel, k):
            return nest
        if any(a.limit is not None or not a.extent for a in nest.axes) or self._is_open(nest):
            return nest
        body = self._expr(nest.body, k)
        return nest if body == nest.body else replace(nest, body=body)

    def _is_open(self, nest: Nest) -> bool:
        return any(self._kernel.tensors[name].type.is_open for name in (nest.out, *nest.reads()))

    def _expr(self, e: Expr, k: int) -> Expr:
        match e:
            case Apply("div", (x, y)):
                load = self._reciprocal(x, y, k)
                return Apply("div", (self._expr(x, k), self._expr(y, k))) if load is None else self._expr(x, k) * load
            case Apply(fn, args):
                return Apply(fn, tuple(self._expr(a, k) for a in args))
            case _:
                return e

    def _reciprocal(self, x: Expr, y: Expr, k: int) -> Load | None:
        """What x is multiplied by instead of being divided by y; None if that saves nothing."""
        inside = frozenset(axes_in(y))
        own = frozenset(axes_in(x)) - inside
        last = max((max(self._kernel.writers.get(z.param, (-1,))) for z in loads(y)), default=-1)
        if isinstance(y, Const) or last >= k:
            return None
        key, axes = _key(y, self._kernel.nests[k])
        if math.prod(a.extent for a in own) < OFTEN and self._texts[key] < SEVERAL:
            return None
        if key not in self._known:
            dtype = self._kernel.dtype_of(y) or self._kernel.tensors[self._kernel.nests[k].out].dtype
            name = self._known[key] = f"{self._kernel.nests[k].out}_reciprocal{len(self.made)}"
            self.made.append(Param(name, Type(dtype, tuple(a.extent for a in axes))))
            # As soon as it can be: what adds up and what reads the sums stay neighbours.
            at = last + 1 if last >= 0 else k
            self.before.setdefault(at, []).append(Nest(name, axes, axes, apply("div", 1.0, y)))
        return Load(self._known[key], axes)


def smooth(kernel: Kernel, k: int) -> bool:
    """Whether a nest and all that comes from it take no steps."""
    changed = set[str]()
    for number, nest in enumerate(kernel.nests[k:], k):
        if number == k or nest.reads() & changed:
            changed.add(nest.out)
            if kernel.tensors[nest.out].storage not in (f32, f64) or any(map(_steps, applied(nest.body))):
                return False
    return True


def _quotients(e: Expr) -> Iterator[Apply]:
    """All quotients of an expression, as often as they stand there."""
    return (x for x in walk(e) if isinstance(x, Apply) and x.fn == "div")


def _key(y: Expr, nest: Nest) -> tuple[Hashable, tuple[Axis, ...]]:
    """What equal divisors of nests share, and the axes that one depends on."""
    inside = frozenset(axes_in(y))
    axes = tuple(a for a in nest.axes if a in inside)
    named = {a: a.named(f"{d}") for d, a in enumerate(axes)}
    return (substitute(y, dict(named)), tuple(named.values())), axes


def _steps(e: Apply) -> bool:
    """Whether a function maps neighbouring floats to values that are far apart."""
    scalar = SCALARS[e.fn]
    return scalar.steps or scalar.rule in ("bool", "cast", "bits") or e.fn in ("floordiv", "truncdiv", "mod", "fmod")
