"""Nests with one subscript per tensor: what every schedule starts from.

    t[i, j]  →  t[i·d₁ + j]         for t of shape (d₀, d₁)

Subscripts that depend on data are clamped into their dimension, so that no content of a tensor can make a program
leave it. (Guards decide elsewhere whether an element is used; this is about memory only.) That is done in the type in
which the data is stored, of which a vector holds more than of subscripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dlc.base.types import i8, i16, i32
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, both, map_loads, substitute
from dlc.kernel.nest import Nest, Param
from dlc.kernel.simplify import MIRRORED, conjuncts, is_index, linear, simplify


def offset(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """The element's position in row-major order."""
    data: Expr | None = None
    plain: Expr = Const(0)
    stride = 1
    for e, d in zip(reversed(index), reversed(shape), strict=True):
        if is_index(e):
            plain = e * stride + plain
        else:
            inside = e if _is_clamped(e, d) else clamped(apply("i64", e), d)
            term = apply("mul", inside, stride) if stride != 1 else inside
            data = term if data is None else apply("add", term, data)
        stride *= d
    plain = rejoined(simplify(plain))
    if data is None:
        return plain
    return data if plain == Const(0) else apply("add", data, plain)


def clamped(e: Expr, extent: int) -> Expr:
    """A subscript, or what is in the dimension and next to it."""
    return apply("min", apply("max", e, 0), max(extent - 1, 0))


def _is_clamped(e: Expr, extent: int) -> bool:
    match e:
        case Apply("i64", (Apply("min", (Apply("max", (_, Const(0))), Const(int() as last))),)):
            return last < extent
        case _:
            return False


def _stored_alike(e: Expr, literal: int, tensors: Mapping[str, Param]) -> Expr | None:
    """What is converted to i64, if its own type holds a literal as well; else None."""
    match e:
        case Apply("i64", (Load(name, _) as x,)) if tensors[name].dtype in (i8, i16, i32):
            low, high = tensors[name].dtype.limits
            return x if low <= literal <= high else None
        case _:
            return None


def _subscript(e: Expr, extent: int, tensors: Mapping[str, Param]) -> Expr:
    """A subscript, if data says it, clamped in the type of the data."""
    x = _stored_alike(e, max(extent - 1, 0), tensors)
    return e if x is None else apply("i64", clamped(x, extent))


def _condition(e: Expr, tensors: Mapping[str, Param]) -> Expr:
    """A comparison of data with a literal in the type of the data."""
    match e:
        case Apply(fn, (a, Const(int() as value))) if fn in MIRRORED and type(value) is int:
            x = _stored_alike(a, value, tensors)
            return e if x is None else apply(fn, x, value)
        case _:
            return e


def rejoined(e: Expr) -> Expr:
    """A simplified index expression with quotients and remainders of one value put together again.

    (x // c)·(c·n) + (x % c)·n   →   x·n
    """
    form = linear(e)
    if form is None:
        return e
    for atom, n in form.terms:
        match atom:
            case Apply("mod", (x, Const(c))) if form.coefficient(apply("floordiv", x, c)) == int(c) * n:
                rest = form.without(atom).without(apply("floordiv", x, c)).expr()
                return rejoined(simplify(rest + x * n))
            case _:
                pass
    return e


def flat_expr(e: Expr, tensors: Mapping[str, Param]) -> Expr:
    """The expression with flat loads."""

    def change(load: Load) -> Expr:
        shape = tensors[load.param].shape
        index = tuple(_subscript(i, d, tensors) for i, d in zip(load.index, shape, strict=True))
        return Load(load.param, (offset(index, shape),))

    return map_loads(e, change)


def flat_nest(nest: Nest, tensors: Mapping[str, Param]) -> Nest:
    """The nest with flat loads and a flat output subscript."""
    where: Expr | None = None
    for part in conjuncts(nest.where):
        where = both(where, _condition(part, tensors))
    flat = replace(nest, where=where).map(lambda e: flat_expr(e, tensors))
    return replace(flat, index=(offset(flat.index, tensors[nest.out].shape),))


def coefficient(e: Expr, axis: Axis) -> int | None:
    """How far an expression moves per step of an axis; None when that is not one number."""
    form = linear(e)
    if form is None:
        match e:
            case Apply("add", (data, plain)) if not axis_inside(data, axis):
                return coefficient(plain, axis)
            case _:
                return None if axis_inside(e, axis) else 0
    if any(atom != axis and axis_inside(atom, axis) for atom, _ in form.terms):
        return None
    return form.coefficient(axis)


def axis_inside(e: Expr, axis: Axis) -> bool:
    """Whether an axis occurs in an expression (iterative: expressions may be deep and shared)."""
    stack, seen = [e], set[Expr]()
    while stack:
        x = stack.pop()
        if x == axis:
            return True
        if x not in seen:
            seen.add(x)
            stack.extend(x.args if isinstance(x, Apply) else x.index if isinstance(x, Load) else ())
    return False


def positions(e: Expr) -> Iterable[Expr]:
    """The flat subscripts of an expression's loads; bare uses of axes as data come as themselves."""
    stack, seen = [e], set[Expr]()
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        match x:
            case Load(_, (at,)):
                yield at
            case Axis():
                yield apply("mul", x, x)  # an axis as data: no linear position, so nothing may be merged into it
            case Apply(_, args):
                stack.extend(args)
            case _:
                pass


def nest_positions(nest: Nest, guard: Iterable[Expr]) -> Iterable[Expr]:
    """All flat subscripts of a nest, and the axes of these parts of its guard, which no merged axis may replace."""
    yield nest.index[0]
    yield from positions(nest.body)
    for part in guard:
        yield from (apply("mul", a, a) for a in part_axes(part))


def part_axes(e: Expr) -> tuple[Axis, ...]:
    """The axes of a guard."""
    stack, found = [e], dict[Axis, None]()
    while stack:
        x = stack.pop()
        if isinstance(x, Axis):
            found[x] = None
        stack.extend(x.args if isinstance(x, Apply) else x.index if isinstance(x, Load) else ())
    return tuple(found)


def merge_axes(nests: tuple[Nest, ...], outer: Axis, inner: Axis) -> tuple[Nest, ...] | None:
    """Flat nests with two axes walked as one, when every subscript moves as far per `outer` as per all of `inner`.

    for outer<A inner<B where outer < c: f(outer·B + inner)   →   for both<A·B where both < c·B: f(both)
    """
    if inner.limit is not None:
        return None
    merged = merged_axis(outer, inner)
    for nest in nests:
        rest = [g for g in conjuncts(nest.where) if _wider(g, outer, inner, merged) is None]
        for p in nest_positions(nest, rest):
            a, b = coefficient(p, outer), coefficient(p, inner)
            if a is None or b is None or a != b * inner.extent:
                return None
    mapping: dict[Expr, Expr] = {outer: Const(0), inner: merged}

    def change(nest: Nest) -> Nest:
        axes = tuple(merged if a == inner else a for a in nest.axes if a != outer)
        fresh = nest.substitute(mapping, axes)
        where: Expr | None = None
        for g in conjuncts(nest.where):
            wider = _wider(g, outer, inner, merged)
            where = both(where, substitute(g, mapping) if wider is None else wider)
        return Nest(
            fresh.out,
            (simplify(fresh.index[0]),),
            axes,
            flat_simplify(fresh.body),
            fresh.reduce,
            where,
        )

    return tuple(change(n) for n in nests)


def merged_axis(outer: Axis, inner: Axis) -> Axis:
    """One axis that walks two."""
    limit = None if outer.limit is None else outer.limit * inner.extent
    return Axis(inner.name, outer.extent * inner.extent, limit)


def _wider(guard: Expr, outer: Axis, inner: Axis, merged: Axis) -> Expr | None:
    """A constant bound of the outer axis as one of the merged axis; None for any other guard."""
    match guard:
        case Apply("ge" | "gt" | "le" | "lt" as fn, (Axis() as axis, Const(int() as k))) if axis == outer:
            end = (k + (fn in ("gt", "le"))) * inner.extent
            return apply("ge" if fn in ("ge", "gt") else "lt", merged, end)
        case _:
            return None


def flat_simplify(e: Expr) -> Expr:
    """Simplify the subscripts of an expression's loads, nothing else (data keeps its operations)."""
    return map_loads(e, lambda load: Load(load.param, (simplify(load.index[0]),)))


def at(e: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    """A flat expression with axes replaced and subscripts simplified again."""
    if is_index(e):
        return simplify(substitute(e, mapping))
    return flat_simplify(substitute(e, mapping))
