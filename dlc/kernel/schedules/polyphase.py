"""Products whose subscripts depend on the remainder of an output axis become one product per remainder.

    t[j] += a[(j+1)//2 + n - 1]·b[(j+1)%2 - 2n + 1]      →      u₀[i] += a[i + n - 1]·b[1 - 2n + …];  t[2i] = u₀[i]
                                                                 u₁[i] += a[i + n]·b[…];               t[2i+1] = u₁[i]

The gradient of a convolution with a stride has this form: per remainder it is a convolution without one (the polyphase
decomposition of filter banks). Conditions that are certain for a remainder disappear, and those on a reduction axis
alone become its extent. What follows element by element, such as a bias, is done remainder by remainder as well:

    r[j] = f(t[j])    →    r[2i] = f(u₀[i]);  r[2i+1] = f(u₁[i])

Where conditions never hold for a remainder, as between the steps of a window of one element, there is nothing to add.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, loads, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.clip import bound
from dlc.kernel.schedules.groups import is_product, plain_write
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.simplify import conjuncts, linear, simplify_nest

# Strides of convolutions are small; larger divisors are the panels and blocks that tensors are stored in.
LARGEST, MOST = 4, 16


def split_phases(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel with one nest per remainder (see the module's equation) where vectors can then be used."""
    if machine.ordered or machine.vector_bytes < 16:
        return kernel
    nests: list[Nest] = []
    locals_ = list(kernel.locals)
    done: Nest | None = None
    for number, nest in enumerate(kernel.nests):
        if nest is done:
            continue
        found = _phases(nest, kernel)
        if found is None:
            nests.append(nest)
            continue
        done = _finish(kernel, number, found)
        if done is not None:
            locals_ = [p for p in locals_ if p.name != nest.out]
        # Copies come behind all products: fused into one, they would tear its rows of columns apart.
        copies: list[Nest] = []
        for k, (single, mapping) in enumerate(found):
            name = f"{nest.out}{nest.axes[0].name}_{number}_{k}"
            of = kernel.tensors[nest.out].type
            index = tuple(mapping.get(i, i) for i in nest.index)
            if Const(False) in conjuncts(single.where):
                part: Expr = Const(kernel.start_of(nest.out))
            else:
                shape = tuple(_dimension(d, i) for i, d in zip(index, of.shape, strict=True))
                locals_.append(Param(name, of.with_shape(shape)))
                nests.append(replace(single, out=name))
                part = Load(name, single.index)
            if done is None:
                copies.append(simplify_nest(Nest(nest.out, index, axes_in(*index), part)))
            else:
                nests.append(_finished(done, nest.out, index, part, axes_in(*single.index)))
        nests += copies
    if len(nests) == len(kernel.nests):
        return kernel
    return replace(kernel, locals=tuple(locals_), nests=tuple(nests))


def _finish(kernel: Kernel, number: int, found: Sequence[tuple[Nest, Mapping[Expr, Expr]]]) -> Nest | None:
    """The next nest, if it alone reads the product, element by element, and writes whole rows of every remainder."""
    out = kernel.nests[number].out
    if out not in kernel.local_numbers or kernel.readers.get(out) != (number + 1,):
        return None
    reader = kernel.nests[number + 1]
    places = {x.index for x in reader.loads[out]}
    axes = [i for i in next(iter(places)) if i != Const(0)]
    whole = len(places) == 1 and len(set(axes)) == len(axes) and set(axes) == set(reader.axes)
    if not whole or reader.reduce is not None or reader.where is not None or not reader.index:
        return None
    named = dict(zip(next(iter(places)), kernel.nests[number].index, strict=True))
    strided = {a for _, mapping in found for a in mapping}
    return None if any(named[a] in strided for a in axes_in(reader.index[-1])) else reader


def _finished(reader: Nest, out: str, index: Sequence[Expr], part: Expr, axes: tuple[Axis, ...]) -> Nest:
    """What reads a product element by element, for the places of one remainder, which `axes` number."""
    (place,) = {x.index for x in reader.loads[out]}
    places = {i: e for i, e in zip(place, index, strict=True) if isinstance(i, Axis)}
    changed = reader.substitute(places, axes)
    return simplify_nest(changed.map_loads(lambda x: part if x.param == out else x))


def _phases(nest: Nest, kernel: Kernel) -> list[tuple[Nest, dict[Expr, Expr]]] | None:
    """One nest per combination of remainders, over fewer points, and what replaces the axes of the output."""
    alone = len(kernel.writers[nest.out]) == 1
    if not _has_two_tensors(nest) or not alone or not plain_write(nest, kernel.tensors[nest.out].shape):
        return None
    kept = [a for a in nest.axes if a not in nest.reduction_axes]
    steps = {a: s for a in kept if (s := _step(nest, a))}
    if not steps or math.prod(steps.values()) > MOST or any(a.extent < s for a, s in steps.items()):
        return None
    out: list[tuple[Nest, dict[Expr, Expr]]] = []
    for remainders in product(*(range(s) for s in steps.values())):
        mapping: dict[Expr, Expr] = {}
        for (a, s), e in zip(steps.items(), remainders, strict=True):
            mapping[a] = Axis(a.name, -(-(a.extent - e) // s)) * s + e
        single = _single(nest, mapping)
        if single is None or any(_step(single, a) for a in single.axes):
            return None
        out.append((single, mapping))
    return out


def _has_two_tensors(nest: Nest) -> bool:
    """Whether it is a product of what is stored, not with coefficients alone."""
    match nest.body:
        case Apply("mul", (x, y)) if is_product(nest):
            return all(any(True for _ in loads(e)) for e in (x, y))
        case _:
            return False


def _single(nest: Nest, mapping: dict[Expr, Expr]) -> Nest | None:
    """The nest for one combination of remainders; None when a reduction axis has none or several that fit."""
    fresh = {a: next(iter(axes_in(e)), None) for a, e in mapping.items()}
    index = tuple(Const(0) if i in fresh and fresh[i] is None else fresh.get(i) or i for i in nest.index)
    axes = tuple(x for a in nest.axes if (x := fresh.get(a, a)) is not None)
    single = replace(nest.substitute(mapping, axes), index=index)
    single = replace(simplify_nest(replace(single, index=index)), out=nest.out)
    for k in single.reduction_axes:
        if s := _step(single, k):
            fitting = [f for e in range(min(s, k.extent)) if (f := _with_remainder(single, k, s, e)) is not None]
            if len(fitting) != 1:
                return None
            single = fitting[0]
    return _tightened(single)


def _with_remainder(nest: Nest, k: Axis, step: int, e: int) -> Nest | None:
    """The nest over `k = step·k' + e`; None when its guard never holds."""
    inner = Axis(k.name, -(-(k.extent - e) // step))
    changed = nest.substitute({k: inner * step + e}, tuple(inner if a == k else a for a in nest.axes))
    changed = simplify_nest(changed)
    return None if Const(False) in conjuncts(changed.where) else changed


def _tightened(nest: Nest) -> Nest:
    """Conditions on a reduction axis alone as its range."""
    for k in nest.reduction_axes:
        mine = [g for g in conjuncts(nest.where) if axes_in(g) == (k,)]
        lows: list[Expr] = [Const(0)]
        highs: list[Expr] = [Const(k.extent)]
        if not mine or not all(bound(g, k, lows, highs) for g in mine):
            continue
        low = max(int(e.value) for e in lows if isinstance(e, Const))
        high = min(int(e.value) for e in highs if isinstance(e, Const))
        inner = Axis(k.name, max(high - low, 0))
        nest = simplify_nest(nest.substitute({k: inner + low}, tuple(inner if a == k else a for a in nest.axes)))
    return nest


def _dimension(whole: int, place: Expr) -> int:
    """How many elements a dimension has at the places of one remainder."""
    form = linear(place)
    assert form is not None
    return (whole - form.constant - 1) // form.terms[0][1] + 1 if form.terms else 1


def _step(nest: Nest, axis: Axis) -> int:
    """The divisor that quotients and remainders of an axis have in common; 0 without any, or with several."""
    found = {int(s) for e in nest.exprs() for s in _divisors(e, axis)}
    return found.pop() if len(found) == 1 and max(found) <= LARGEST else 0


def _divisors(e: Expr, axis: Axis) -> Iterator[int]:
    for x in walk(e):
        match x:
            case Apply("floordiv" | "mod", (inner, Const(int() as s))) if axis in axes_in(inner):
                yield s
            case _:
                pass
