"""Sums whose terms cancel, and what they are factors of, are not computed.

    m[i] = maxⱼ x[i,j];  e[i,j] = exp(x[i,j] - m[i]);  s[i] += e[i,j];  p[i] += g[i,j]·e[i,j]
    d[i] += (g[i,j]/s[i] - p[i]/s[i]/s[i])·e[i,j]          →     (nothing: d[i] = p[i]/s[i] - p[i]/s[i] = 0)

What is subtracted from a whole row before a function that does not depend on it, as in softmax, log-sum-exp and norms,
has a gradient of 0, which derivatives find as a sum of all gradients of the row. Elements are polynomials of loads,
functions of loads, and sums of products of these; sums of equal products are equal, also where some factors of one of
them are added up before the others: Σⱼ (Σₖ a[i,k]·b[j,k])·e[i,j] is the sum of a[i,k]·b[j,k]·e[i,j] over j and k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Final

from dlc.base.types import f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, loads, map_loads, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.groups import has_reuse, plain_write
from dlc.kernel.schedules.laurent import Laurent, Monomial, laurent
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.simplify import is_index

MOST_NODES: Final = 400
"""Of all bodies of a kernel that is looked at."""


def without_vanishing(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel (see the module's equations), but for rounding."""
    if machine.ordered or not _may(kernel):
        return kernel
    algebra = _Algebra(kernel)
    zero: set[str] = set()
    nests: list[Nest] = []
    for nest in kernel.nests:
        if zero & nest.reads() and not any(zero & {x.param for x in loads(i)} for i in nest.index):
            body = _without(nest.body, zero)
            nest = replace(nest, body=Const(0.0)) if body is None else replace(nest, body=body)
        if algebra.define(nest):
            zero.add(nest.out)
            kept = tuple(a for a in nest.axes if a not in nest.reduction_axes)
            nest = Nest(nest.out, nest.index, kept, Const(0.0))
        nests.append(nest)
    return replace(kernel, nests=tuple(nests)) if zero else kernel


def _may(kernel: Kernel) -> bool:
    """Whether there is a sum of what depends on another sum."""
    sums = [n for n in kernel.nests if n.reduce is not None and n.reduction_axes and not has_reuse(n)]
    reduced = {n.out for n in sums}
    behind = set(reduced)
    for n in kernel.nests:
        if n.reads() & behind:
            behind.add(n.out)
    chained = any(n.reduce == "add" and n.reads() & behind for n in sums)
    return chained and sum(n.nodes for n in kernel.nests) <= MOST_NODES


def _without(e: Expr, zero: set[str]) -> Expr | None:
    """An expression without the terms that have a factor that is 0; None where nothing is left of it."""
    match e:
        case Load(name, _):
            return None if name in zero else e
        case Apply("add" | "sub" | "mul" | "div" | "neg" | "select" as fn, args):
            found = [_without(a, zero) for a in args]
            match fn, found:
                case (
                    ("neg", [None])
                    | ("mul", [None, _] | [_, None])
                    | ("div", [None, _])
                    | ("add" | "sub", [None, None])
                ):
                    return None
                case "add", [None, x] | [x, None]:
                    return x
                case "sub", [x, None]:
                    return x
                case "sub", [None, x] if x is not None:
                    return apply("neg", x)
                case "select", [_, None | Const(0.0), None | Const(0.0)]:
                    return None
                case _:
                    return apply(fn, *(Const(0.0) if x is None else x for x in found))
        case Apply(fn, args):
            found = [_without(a, zero) for a in args]
            return apply(fn, *(Const(0.0) if x is None else x for x in found))
        case _:
            return e


class _Algebra:
    """What the elements of tensors are, as far as it is known."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._maps: dict[str, Nest] = {}
        self._values: dict[str, tuple[tuple[Expr, ...], Laurent]] = {}
        self._sums: dict[tuple[Monomial, tuple[Axis, ...]], str] = {}
        self._products: dict[str, tuple[Monomial, tuple[Axis, ...], tuple[Axis, ...]]] = {}

    def define(self, nest: Nest) -> bool:
        """Note what a nest computes. Whether all of it is 0."""
        p = self._kernel.tensors[nest.out]
        known = p.storage in (f32, f64) and p.dtype == p.storage and not p.type.is_open and nest.where is None
        alone = len(self._kernel.writers[nest.out]) == 1 and nest.out not in nest.reads()
        if not (known and alone and plain_write(nest, p.shape)) or nest.reduce not in (None, "add"):
            return False
        value = laurent(nest.body, self._atom)
        if not nest.reduction_axes:
            self._maps[nest.out] = nest
        elif value is not None:
            value = None if has_reuse(nest) else self._sum(value, frozenset(nest.reduction_axes))
        if value is None:
            return False
        self._values[nest.out] = nest.index, value
        return not value.terms

    def _atom(self, e: Expr) -> Laurent:
        """What an atom is: the value of a tensor whose elements are known, or itself."""
        if isinstance(e, Load) and e.param in self._values and all(map(is_index, e.index)):
            index, value = self._values[e.param]
            return _moved(value, {a: b for a, b in zip(index, e.index, strict=True) if isinstance(a, Axis)})
        return Laurent.atom(self._inlined(e))

    def _inlined(self, e: Expr) -> Expr:
        """The expression over what is no map of something else."""

        def change(load: Load) -> Expr:
            nest = self._maps.get(load.param)
            if nest is None or not all(map(is_index, load.index)):
                return load
            at = {a: b for a, b in zip(nest.index, load.index, strict=True) if isinstance(a, Axis)}
            return self._inlined(substitute(nest.body, at))

        return map_loads(e, change)

    def _sum(self, value: Laurent, reduced: frozenset[Axis]) -> Laurent:
        """The sum of a polynomial over axes: equal products have equal sums."""
        total = Laurent({})
        for m, c in value.terms.items():
            inside = frozenset((a, k) for a, k in m if reduced.intersection(axes_in(a)))
            of = frozenset(x for a, _ in inside for x in axes_in(a))
            times = Fraction(prod(a.extent for a in reduced - of))
            factor = Laurent({m - inside: c * times})
            total = total.plus(factor.times(self._known_sum(inside, reduced & of)) if inside else factor)
        return total

    def _known_sum(self, m: Monomial, reduced: frozenset[Axis]) -> Laurent:
        """The sum of a product as an atom: a load at the axes that are left."""
        m, reduced = self._flat(m, reduced)
        factors = sorted(m, key=repr)
        axes = axes_in(*(a for a, _ in factors))
        summed = [a for a in axes if a in reduced]
        left = [a for a in axes if a not in reduced]
        names: Mapping[Expr, Expr] = {a: a.named(f"w{k}") for k, a in enumerate(summed)}
        names = {**names, **{a: a.named(f"o{k}") for k, a in enumerate(left)}}
        key = frozenset((substitute(a, names), k) for a, k in m)
        name = self._sums.setdefault((key, tuple(a.named("") for a in summed)), f"sum {len(self._sums)}")
        self._products[name] = m, tuple(summed), tuple(left)
        return Laurent.atom(Load(name, tuple(left)))

    def _flat(self, m: Monomial, reduced: frozenset[Axis]) -> tuple[Monomial, frozenset[Axis]]:
        """A product and the axes of its sum, with the factors of sums in the place of these."""
        inner = [(a, k) for a, k in m if isinstance(a, Load) and a.param in self._products]
        if any(k != 1 for _, k in inner):
            return m, reduced
        found = m - frozenset(inner)
        for n, (a, _) in enumerate(sorted(inner, key=repr)):
            assert isinstance(a, Load)
            factors, summed, left = self._products[a.param]
            fresh = {x: x.named(f"s{n} {x.name}") for x in summed}
            at: dict[Expr, Expr] = {**fresh, **dict(zip(left, a.index, strict=True))}
            moved = frozenset((substitute(f, at), k) for f, k in factors)
            if {f for f, _ in found} & {f for f, _ in moved}:
                return m, reduced
            found, reduced = found | moved, reduced | frozenset(fresh.values())
        return found, reduced


def _moved(value: Laurent, axes: Mapping[Expr, Expr]) -> Laurent:
    """A polynomial at other subscripts."""
    found = Laurent({})
    for m, c in value.terms.items():
        found = found.plus(Laurent({frozenset((substitute(a, axes), k) for a, k in m): c}))
    return found
