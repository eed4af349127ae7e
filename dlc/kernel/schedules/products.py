"""Sums of products in the order that takes the fewest steps, whatever the order in which they are written.

    r[i,j] += c·a[i,k]·b[j,k]/n[i]               →   t[i,j] += a[i,k]·b[j,k];  r[i,j] = t[i,j]·c/n[i]
    r[i,j] += a[i,k]·b[k,l]·c[l,j]               →   t[k,j] += b[k,l]·c[l,j];  r[i,j] += a[i,k]·t[k,j]
    r[i]   += a[i,k]/√n[k]                       →   t[k] = 1/√n[k];  r[i] += a[i,k]·t[k]
    r[i,j] += (a[k,i] - m[i])·(a[k,j] - m[j])    →   t[k,i] = a[k,i] - m[i];  r[i,j] += t[k,i]·t[k,j]
    r[i]   += a[i,j] + b[i,k]   (j<J, k<K)       →   s[i] += a[i,j];  t[i] += b[i,k];  r[i] = K·s[i] + J·t[i]

What does not depend on the axes that are added up is multiplied, or divided by, once; what costs more than a
multiplication and depends on a few axes only is computed once for all values of the others. Of several tensors two at a
time are multiplied and added up, in the order of the fewest steps (opt_einsum's optimal one), where that saves a part
of them; a part that an earlier nest has computed takes none. Terms that have no axis in common are added up by
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from dlc.base.types import Type, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.coefficients import multiplies_constants
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.product_orders import (
    Factor,
    Order,
    best_orders,
    kept_axes,
    left_axes,
    named_product,
    points_at_once,
)
from dlc.kernel.schedules.shared_values import lying
from dlc.kernel.simplify import is_index
from dlc.kernel.work import applied

MOST_FACTORS = 6
"""Factors of which every order is looked at."""
GAIN = 0.75
"""Of the multiplications of two operands at once, what products of several tensors may take in an order."""
OFTEN = 8
"""Times that a factor is computed in loops from which on it is computed before them, and kept."""
DEAR = 4.0
"""Cycles of a function whose values are worth to be kept."""


def ordered_products(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel (see the module's equations), but for the rounding of its sums."""
    if machine.ordered:
        return kernel
    work = _Work(kernel)
    for number, nest in enumerate(kernel.nests):
        work.number = number
        work.add(nest, len(kernel.writers[nest.out]) == 1)
    if tuple(work.nests) == kernel.nests:
        return kernel
    return replace(kernel, nests=tuple(work.nests), locals=(*kernel.locals, *work.made))


class _Work:
    """The nests of a kernel that is written anew, and the tensors between them.

    Attributes:
        number: The nest of the kernel that is added.
    """

    number = 0

    def __init__(self, kernel: Kernel) -> None:
        self.nests: list[Nest] = []
        self.made: list[Param] = []
        self._tensors = dict(kernel.tensors)
        self._writers = kernel.writers
        self._products: dict[Hashable, tuple[str, tuple[int, ...]]] = {}

    def add(self, nest: Nest, alone: bool) -> None:
        """A nest, or several that leave the same; `alone`: no other one writes what it writes."""
        if not self._adds_up(nest):
            self.nests.append(nest)
            return
        if terms := _separate(nest):
            total = self._summed(nest, terms[0])
            for term in terms[1:]:
                total = total + self._summed(nest, term)
            self.nests.append(_stored(nest, total, alone))
            return
        reduced = frozenset(nest.reduction_axes)
        factors = list(_factors(nest.body))
        # Along an axis that no factor has, what is added up counts several times.
        if multiplies_constants(nest) or reduced - {a for f in factors for a in f.axes}:
            self.nests.append(nest)
            return
        kept = [self._once(nest, f) for f in self._alike(nest, factors)]
        if kept != factors:
            factors, nest = kept, replace(nest, body=_value(kept))
        inner = sorted((f for f in factors if f.axes & reduced), key=lambda f: f.divides)
        outer = [f for f in factors if not f.axes & reduced]
        # Where a guard fails, the others may not exist.
        unsafe = nest.where is not None and not all(isinstance(f.value, Const) for f in outer)
        if not inner or inner[0].divides or unsafe:
            self.nests.append(nest)
        elif not outer:
            self._multiply(nest, inner, alone)
        else:
            part = self._tensor(nest, kept_axes(nest))
            self._multiply(replace(nest, out=part.param, index=part.index, body=_value(inner)), inner, True)
            self.nests.append(_stored(nest, _value([Factor(part), *outer]), alone))

    def _alike(self, nest: Nest, factors: Sequence[Factor]) -> list[Factor]:
        """Factors that are computed alike along different axes, read from one tensor."""
        found: dict[Hashable, list[tuple[int, tuple[Axis, ...]]]] = {}
        out = list(factors)
        for k, f in enumerate(factors if nest.where is None else ()):
            if isinstance(f.value, Apply) and not f.divides:
                axes = lying(f.value)
                key = substitute(f.value, {a: a.named(f"{d}") for d, a in enumerate(axes)})
                found.setdefault((key, tuple(a.extent for a in axes)), []).append((k, axes))
        for places in found.values():
            first, axes = places[0]
            often = math.prod(a.extent for a in axes) * OFTEN <= nest.points
            if often and len({own for _, own in places}) > 1:
                part = self._tensor(nest, axes)
                self.nests.append(Nest(part.param, axes, axes, factors[first].value))
                for k, own in places:
                    out[k] = Factor(Load(part.param, own))
        return out

    def _once(self, nest: Nest, f: Factor) -> Factor:
        """A factor, read from a tensor of its own if computing it there saves work."""
        reduced = frozenset(nest.reduction_axes)
        points = math.prod(a.extent for a in f.axes)
        dear = f.divides or any(SCALARS[x.fn].cycles >= DEAR and not is_index(x) for x in applied(f.value))
        if nest.where is not None or not dear or not f.axes & reduced or points * OFTEN > nest.points:
            return f
        axes = tuple(a for a in nest.axes if a in f.axes)
        part = self._tensor(nest, axes)
        self.nests.append(Nest(part.param, axes, axes, apply("div", 1.0, f.value) if f.divides else f.value))
        return Factor(part)

    def _adds_up(self, nest: Nest) -> bool:
        """Whether a nest adds floats up into elements of their own."""
        out = self._tensors[nest.out]
        plain = out.dtype in (f32, f64) and not out.stored and plain_write(nest, out.shape)
        # What is made here has the largest size that there can be.
        closed = not any(self._tensors[name].type.is_open for name in (nest.out, *nest.reads()))
        sized = closed and all(a.limit is None and a.extent > 0 for a in nest.axes)
        values = (nest.body, *(x for e in applied(nest.body) for x in e.args))
        floats = all(self._tensors[x.param].storage in (f32, f64) for x in values if isinstance(x, Load))
        adds = nest.reduce == "add" and bool(nest.reduction_axes)
        # Schedules know sums of numbers in narrow types by their form: scales of blocks are applied as they are read.
        return adds and plain and sized and floats and nest.out not in nest.reads()

    def _tensor(self, nest: Nest, axes: tuple[Axis, ...]) -> Load:
        """The element of a new tensor at these axes, which holds sums of a nest."""
        # With a word: vectors of sums have the name of the sum and a number.
        name, extents = f"{nest.out}_sum{len(self.made)}", tuple(a.extent for a in axes)
        made = Param(name, Type(self._tensors[nest.out].dtype, extents))
        self.made.append(made)
        self._tensors[made.name] = made
        return Load(made.name, axes)

    def _summed(self, nest: Nest, term: Expr) -> Expr:
        """The sum of a term over the axes that it has, times the points of the others."""
        inside = frozenset(axes_in(term))
        times = math.prod(a.extent for a in nest.reduction_axes if a not in inside)
        own = tuple(a for a in nest.reduction_axes if a in inside)
        value = term
        if own:
            kept = tuple(a for a in kept_axes(nest) if a in inside)
            value = self._tensor(nest, kept)
            self.add(Nest(value.param, kept, (*kept, *own), term, "add"), True)
        return value * float(times) if times > 1 else value

    def _multiply(self, nest: Nest, factors: Sequence[Factor], alone: bool) -> None:
        """The sum of a product, in parts where these take fewer steps."""
        whole = frozenset(range(len(factors)))
        divides = any(f.divides for f in factors)
        several = 1 < len(factors) <= MOST_FACTORS
        orders: Mapping[frozenset[int], Order] = {}
        if several and not divides and nest.where is None:
            orders = best_orders(nest, factors, self._known(nest, factors))
        if not orders or orders[whole].points > GAIN * points_at_once(nest, factors):
            self.nests.append(nest)
            if several and alone and not divides and nest.where is None:
                self._note(nest, factors)
        else:
            body = self._part(nest, factors, orders, whole)
            summed = tuple(a for a in nest.reduction_axes if a in axes_in(body))
            changed = replace(nest, body=body, axes=(*kept_axes(nest), *summed))
            self.nests.append(changed if summed else _stored(nest, body, alone))

    def _part(
        self, nest: Nest, factors: Sequence[Factor], orders: Mapping[frozenset[int], Order], of: frozenset[int]
    ) -> Expr:
        """The product of some factors, added up as far as it can be before the others; not added up if it is all."""
        parts, known = orders[of].parts, orders[of].known
        if known is not None:
            return known
        if parts is None:
            value = factors[min(of)].value
        else:
            value = self._part(nest, factors, orders, parts[0]) * self._part(nest, factors, orders, parts[1])
        axes, left = frozenset(axes_in(value)), left_axes(nest, factors, of)
        if len(of) == len(factors) or (parts is None and axes == left):
            return value
        # What is added up later comes first, so that columns stay next to each other.
        index = tuple(a for a in (*nest.reduction_axes, *kept_axes(nest)) if a in left)
        part = self._tensor(nest, index)
        self.nests.append(Nest(part.param, index, (*index, *(a for a in nest.axes if a in axes - left)), value, "add"))
        return part

    def _note(self, nest: Nest, factors: Sequence[Factor]) -> None:
        """Remember a sum of a product, of tensors that do not change any more."""
        changed = any(max(self._writers.get(name, (-1,))) >= self.number for name in nest.reads())
        if not changed and (named := named_product(factors, frozenset(kept_axes(nest)))) is not None:
            key, axes = named
            if all(isinstance(i, Axis) for i in nest.index):
                self._products[key] = nest.out, tuple(axes.index(i) for i in nest.index if isinstance(i, Axis))

    def _known(self, nest: Nest, factors: Sequence[Factor]) -> Mapping[frozenset[int], Load]:
        """The parts of a product that earlier nests have computed."""
        found: dict[frozenset[int], Load] = {}
        for size in range(2, len(factors)) if self._products else ():
            for members in combinations(range(len(factors)), size):
                of = frozenset(members)
                named = named_product([factors[k] for k in members], left_axes(nest, factors, of))
                if named is not None and named[0] in self._products:
                    out, places = self._products[named[0]]
                    found[of] = Load(out, tuple(named[1][p] for p in places))
        return found


def _stored(nest: Nest, value: Expr, alone: bool) -> Nest:
    """What stores a value where a nest adds it up."""
    return Nest(nest.out, nest.index, kept_axes(nest), value, None if alone else "add")


def _separate(nest: Nest) -> list[Expr]:
    """The terms of a sum, if there is an axis for each of them that it lacks and another one has; else none."""
    terms = list(_terms(nest.body))
    reduced = frozenset(nest.reduction_axes)
    own = [reduced & frozenset(axes_in(t)) for t in terms]
    return terms if nest.where is None and all(axes < frozenset().union(*own) for axes in own) else []


def _terms(e: Expr, negative: bool = False) -> Iterator[Expr]:
    match e:
        case Apply("add", (x, y)):
            yield from _terms(x, negative)
            yield from _terms(y, negative)
        case Apply("sub", (x, y)):
            yield from _terms(x, negative)
            yield from _terms(y, not negative)
        case _:
            yield -e if negative else e


def _factors(e: Expr, divides: bool = False) -> Iterator[Factor]:
    match e:
        case Apply("mul", (x, y)) if not divides:
            yield from _factors(x)
            yield from _factors(y)
        case Apply("div", (x, y)) if not divides:
            yield from _factors(x)
            yield Factor(y, True)
        case Apply("neg", (x,)) if not divides:
            yield Factor(Const(-1.0))
            yield from _factors(x)
        case _:
            yield Factor(e, divides)


def _value(factors: Sequence[Factor]) -> Expr:
    """The product of factors of which the first one does not divide."""
    total = factors[0].value
    for f in factors[1:]:
        total = apply("div" if f.divides else "mul", total, f.value)
    return total
