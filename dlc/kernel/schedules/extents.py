"""Loops that end where the sizes of a call say, over memory that is laid out for the largest ones.

    n = min(max(p1, 1), 64)
    for i<64: r[i] = f(p0[i])              →    for i < n: r[i] = f(p0[i])        r: f32[batch(1,64)]
    for k<64: s += f(p0[k]) if k < n       →    for k < n: s += f(p0[k])

What lies behind the end of a dimension has no meaning, so what is only written there is not computed at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final, cast

from dlc.base.extents import Dim, Extent, symbols
from dlc.base.polynomials import Symbol
from dlc.base.types import Type, i64
from dlc.kernel.expr import SIZE, Apply, Axis, Const, Expr, Load, apply, axes_in, both, size, size_of, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Let, Local, LoopProgram, Stmt
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import bounds, conjuncts, linear, simplify, simplify_guard

_SIZE: Final = "size"


def is_size(axis: Axis) -> bool:
    """Whether what looks like the variable of a loop is a size."""
    return axis.name.startswith(_SIZE)


def size_axes(symbols: Iterable[Symbol]) -> Mapping[Symbol, Axis]:
    """The sizes of symbols as subscripts know them: units above the smallest size.

    A size is like the variable of a loop around everything: a number within bounds that subscripts may use.
    """
    return {s: Axis(f"{_SIZE}{k}", s.high - s.low + 1) for k, s in enumerate(symbols)}


def sizes_first(program: LoopProgram) -> tuple[tuple[Let, ...], tuple[Stmt, ...]]:
    """What reads the sizes of a call, and the statements after it."""
    first = tuple(takewhile(lambda s: isinstance(s, Let) and s.local.name.startswith(_SIZE), program.body))
    return cast(tuple[Let, ...], first), program.body[len(first) :]


def limited(kernel: Kernel) -> tuple[Kernel, Sequence[Let]]:
    """The kernel with sizes as subscripts know them and loops that end at them; what computes the sizes before."""
    held = _held(kernel)
    if not held:
        return kernel, ()
    axes = size_axes(held)
    leaves = _leaves(axes)
    mapping = {_loaded(s, held, ()): leaves[s] for s in held}
    lets = tuple(Let(Local(axes[s].name, i64), _loaded(s, held, (Const(0),)) - s.low) for s in held)
    nests = tuple(_limited(_sized(n, mapping), kernel, leaves) for n in kernel.nests)
    return replace(kernel, nests=nests), lets


def ended(nest: Nest, kernel: Kernel, *more: Expr) -> Nest:
    """One nest of a kernel as `limited` leaves it, `more` parts of a guard added; sizes as `by_symbol` names them."""
    changed = by_symbol(nest, kernel)
    where = changed.where
    for part in more:
        where = both(where, part)
    return _limited(replace(changed, where=simplify_guard(where)), kernel, _named(kernel))


def by_symbol(nest: Nest, kernel: Kernel) -> Nest:
    """A nest with sizes named after their symbols, for comparisons with nests of other kernels."""
    held, leaves = _held(kernel), _named(kernel)
    return _sized(nest, {_loaded(s, held, ()): leaves[s] for s in held})


def size_in(kernel: Kernel, extent: Extent) -> Expr | None:
    """An extent as an expression over the parameters of a kernel; None where it has no such size."""
    held = _held(kernel)
    if any(s not in held for s in symbols(extent)):
        return None
    return substitute(size(extent), {Load(SIZE + s.name, ()): Load(name, ()) for s, name in held.items()})


def _held(kernel: Kernel) -> Mapping[Symbol, str]:
    """The parameters that hold sizes."""
    return {p.type.symbol: p.name for p in kernel.params if p.type.symbol is not None}


def _leaves(axes: Mapping[Symbol, Axis]) -> Mapping[Symbol, Expr]:
    """The units of every symbol as an expression over sizes."""
    return {s: axis + s.low for s, axis in axes.items()}


def _named(kernel: Kernel) -> Mapping[Symbol, Expr]:
    """The same with variables named after the symbols."""
    return _leaves({s: axis.named(f"{_SIZE} {s.name}") for s, axis in size_axes(_held(kernel)).items()})


def _loaded(symbol: Symbol, held: Mapping[Symbol, str], at: tuple[Expr, ...]) -> Expr:
    """A size as an expression over the parameters of a kernel."""
    return substitute(size_of(symbol), {Load(SIZE + symbol.name, ()): Load(held[symbol], at)})


def _sized(nest: Nest, mapping: Mapping[Expr, Expr]) -> Nest:
    changed = nest.map(lambda e: substitute(e, mapping))
    index = tuple(simplify(i) for i in changed.index)
    return replace(changed, index=index, body=simplify(changed.body), where=simplify_guard(changed.where))


def _limited(nest: Nest, kernel: Kernel, leaves: Mapping[Symbol, Expr]) -> Nest:
    written, whole = _written(nest, kernel.tensors[nest.out].type, leaves)
    ends = dict(written)
    where: Expr | None = None
    for part in conjuncts(nest.where):
        found = _guard(part, nest, leaves)
        end = None if found is None else _sooner(ends.get(found[0], Const(found[0].extent)), found[1])
        # Where a dimension goes on behind a guard, its elements have to hold the start: no loop may be made shorter for
        # the guard. `needs_fill` takes a nest without one for a nest that writes up to the end.
        if found is None or end is None or found[0] in whole or written.get(found[0], end) != end:
            where = both(where, part)
        else:
            ends[found[0]] = end
    if not ends:
        return nest
    axes = {a: Axis(a.name, a.extent, ends[a]) if a in ends else a for a in nest.axes}
    return replace(nest, where=where).substitute(axes, tuple(axes.values()))


def _written(nest: Nest, of: Type, leaves: Mapping[Symbol, Expr]) -> tuple[dict[Axis, Expr], frozenset[Axis]]:
    """Where axes leave the dimensions that they write, in terms of sizes; the axes of dimensions without sizes."""
    ends: dict[Axis, Expr] = {}
    whole: set[Axis] = set()
    for i, d in zip(nest.index, () if of.dense else of.shape, strict=False):
        found = _along(i, nest)
        if found is None or found[1] < 1:
            continue
        axis, step, first = found
        if not isinstance(d, Dim):
            whole |= {axis} if (bounds(first) or (0, 0))[1] + (axis.extent - 1) * step + 1 >= d else set()
        elif set(symbols(d)) <= set(leaves) and set(axes_in(first)) <= set(axes_in(*leaves.values())):
            end = _not_before_0((in_sizes(d, leaves) - first + (step - 1)) // step)
            if _sooner(Const(axis.extent), end) == end:
                ends.setdefault(axis, end)
    return ends, frozenset(whole)


def _sooner(a: Expr, b: Expr) -> Expr | None:
    """The end that comes first at every size; None where it is one or the other."""
    span = bounds(simplify(b - a))
    return None if span is None else a if span[0] >= 0 else b if span[1] <= 0 else None


def ends_of(of: Type, kernel: Kernel) -> tuple[Expr, ...] | None:
    """Where each dimension ends, as the subscripts of a `limited` kernel know sizes; None where it has no such size."""
    leaves = _leaves(size_axes(_held(kernel)))
    return tuple(in_sizes(d, leaves) for d in of.shape) if set(symbols(*of.shape)) <= set(leaves) else None


def reach_in(of: Type, kernel: Kernel) -> Expr | None:
    """Where the elements of a call end in the memory of a tensor; None: where that memory does."""
    leaves = _leaves(size_axes(_held(kernel)))
    known = of.is_open and set(symbols(*of.shape)) <= set(leaves)
    return _not_before_0(in_sizes(of.reach, leaves)) if known else None


def in_sizes(d: Extent, leaves: Mapping[Symbol, Expr]) -> Expr:
    """A dimension in terms of the sizes."""
    return simplify(substitute(size(d), {size_of(s): leaf for s, leaf in leaves.items()}))


def _guard(part: Expr, nest: Nest, leaves: Mapping[Symbol, Expr]) -> tuple[Axis, Expr] | None:
    """(axis, end) of a condition that an axis lies before an expression over sizes."""
    match part:
        case Apply("lt" | "le" as fn, (x, y)):
            found = _along(x - y, nest)
        case _:
            return None
    if found is None or found[1] != 1:
        return None
    axis, _, rest = found
    end = Const(0) - rest + int(fn == "le")
    return (axis, _not_before_0(end)) if set(axes_in(end)) <= set(axes_in(*leaves.values())) else None


def _along(e: Expr, nest: Nest) -> tuple[Axis, int, Expr] | None:
    """(axis, factor, rest) of an expression that is linear in one axis of a nest alone."""
    form = linear(e)
    mine = [t for t in form.terms if t[0] in nest.axes] if form is not None else []
    if form is None or len(mine) != 1 or not isinstance(axis := mine[0][0], Axis):
        return None
    return axis, mine[0][1], form.without(axis).expr()


def _not_before_0(end: Expr) -> Expr:
    """The end of a loop: what follows its tiles begins where they end, which must not be before 0."""
    end = simplify(end)
    span = bounds(end)
    return end if span is not None and span[0] >= 0 else apply("max", end, 0)
