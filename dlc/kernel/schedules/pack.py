"""Copies of operands in the order in which a contraction reads them, with padding written out as zeros.

    a[oh + kh - 1, c] where 0 <= oh + kh - 1 < H   →   halo[oh + kh - y, c]      halo: rows y-1 … of a, zero outside

A guard that only keeps an operand inside its tensor disappears: outside, the copy holds 0, and 0 · w adds nothing for
every finite w. (With an infinite or NaN weight the sum becomes NaN there, as it does in any library that pads.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.base.types import DType, Type
from dlc.kernel.expr import TRUE, Apply, Axis, Const, Expr, Load, apply, axes_in, both, loads, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import For, If, Stmt, Store, loop, wrap
from dlc.kernel.nest import Param, zero
from dlc.kernel.schedules.clip import divided
from dlc.kernel.schedules.extents import is_size
from dlc.kernel.schedules.flat import flat_expr, offset
from dlc.kernel.schedules.lanes import has_lanes, vectorise
from dlc.kernel.simplify import bounds, conjuncts, is_index, linear, simplify, simplify_guard

Form: TypeAlias = tuple[frozenset[tuple[Expr, int]], int] | Expr
"""Terms and constant of a condition `Σ >= 0`; any other condition as it is."""


@dataclass(frozen=True)
class Packed:
    """An operand's copy.

    Attributes:
        buffer: Its name, type and shape.
        load: What replaces the operand in the nest's body.
        fill: The loops that write the copy; they run inside the loops of the axes it is fixed for.
    """

    buffer: Param
    load: Load
    fill: tuple[Stmt, ...]


@dataclass(frozen=True)
class Block:
    """A part of the rows: `axis` runs from `start` over at most `size` values."""

    axis: Axis
    start: Axis
    size: int


@dataclass(frozen=True)
class _Dim:
    """A dimension of the operand: subscript inside the copy, first element of the copy, and how many there are."""

    number: int
    inside: Expr
    source: Expr
    extent: int
    limit: Expr | None = None
    """How many there are for the sizes of a call, where that is less."""


def halo(
    load: Load,
    param: Param,
    guard: Expr | None,
    fixed: Sequence[Axis],
    block: Block | None,
    column: Axis,
    out: Sequence[Axis],
    name: str = "pa",
) -> Packed | None:
    """The copy of a guarded operand; None when the guard says more than that the operand exists.

    Args:
        load: The operand, with one subscript per dimension.
        param: Its tensor.
        guard: The nest's guard.
        fixed: Axes outside of whose loops nothing is copied.
        block: The rows that one copy serves; None: all.
        column: The axis of the vectors; if the operand has it, its dimensions stay in order.
        out: Axes of the output.
        name: The copy's name.
    """
    if not only_exists(load, param, guard):
        return None
    ends = _ends(load, param, guard)
    dims: list[_Dim] = []
    for d, e in enumerate(load.index):
        split = _split(e, fixed, block)
        if split is None:
            return None
        inner, outer, low, high = split
        # Rows of a block and columns of a vector are computed to their ends, whatever the sizes of a call.
        walked = {column} if block is None else {column, block.axis}
        limit = None if walked & set(axes_in(inner)) else _reach(inner)
        dims.append(_Dim(d, simplify(inner - low), outer + low, high - low + 1, limit and simplify(limit - low + 1)))
    kept = [x for x in dims if x.extent > 1 or axes_in(x.inside)]
    if column not in axes_in(*load.index):
        # The dimension that only the reduction walks comes last, so that it is contiguous.
        kept.sort(key=lambda x: len(linear_atoms(x.inside)) == 1 and not _walks_output(x.inside, out))
    return _copy(load, ends, dims, kept, name, param)


def only_exists(load: Load, param: Param, guard: Expr | None) -> bool:
    """Whether a guard says that an element of a tensor exists, and nothing else."""
    ends = _ends(load, param, guard)
    needed = {simplify(c) for e, end in zip(load.index, ends, strict=True) for c in (e >= 0, e < end)} - {TRUE}
    return {_form(c) for c in conjuncts(simplify_guard(guard))} == {_form(c) for c in needed}


def _ends(load: Load, param: Param, guard: Expr | None) -> list[Expr]:
    """Where each dimension ends, as a guard says."""
    return [_end(e, d, guard) for e, d in zip(load.index, param.shape, strict=True)]


def inside(e: Expr, tensors: Mapping[str, Param], guard: Expr | None = None) -> bool:
    """Whether every load of an operand certainly exists where a guard holds; subscripts that are data are clamped."""
    given = [_form(c) for c in conjuncts(simplify_guard(guard))]
    pairs = ((i, d) for x in loads(e) for i, d in zip(x.index, tensors[x.param].shape, strict=True) if is_index(i))
    return all(_implied(_form(c), given) for i, d in pairs for c in (simplify(i >= 0), simplify(i < d)) if c != TRUE)


def _implied(c: Form, given: Sequence[Form]) -> bool:
    """Whether one of the conditions given is this one, or the same with less room: i - 1 >= 0 tells of i >= 0."""
    if isinstance(c, Expr):
        return c in given
    return any(not isinstance(g, Expr) and g[0] == c[0] and g[1] <= c[1] for g in given)


def _form(c: Expr) -> Form:
    """A comparison of index expressions as the terms and the constant of `Σ >= 0`, however it was written."""
    match c:
        case Apply("ge" | "gt", (x, y)):
            form = linear(x - y)
        case Apply("le" | "lt", (x, y)):
            form = linear(y - x)
        case _:
            return c
    return c if form is None else (frozenset(form.terms), form.constant - (c.fn in ("gt", "lt")))


def _split(e: Expr, fixed: Sequence[Axis], block: Block | None) -> tuple[Expr, Expr, int, int] | None:
    """A subscript as (part inside the copy, part given by outer loops, least and greatest inside value)."""
    form = linear(e)
    if form is None:
        return None
    inner: Expr = Const(0)
    span: Expr = Const(0)
    outer: Expr = Const(form.constant)
    for atom, c in form.terms:
        inside = axes_in(atom)
        if all(a in fixed for a in inside):
            outer = outer + atom * c
            continue
        if any(a in fixed for a in inside):
            return None
        if block is not None and block.axis in inside:
            if atom != block.axis:
                return None
            inner = inner + (block.axis - block.start) * c
            outer = outer + block.start * c
            span = span + Axis("part", block.size) * c
        else:
            inner = inner + atom * c
            span = span + atom * c
    found = bounds(simplify(span))
    return None if found is None else (inner, outer, found[0], found[1])


def _end(e: Expr, extent: int, guard: Expr | None) -> Expr:
    """Where a dimension ends for its subscript: where the guard says, in terms of sizes, or with the room there is."""
    for part in conjuncts(simplify_guard(guard)):
        match part:
            case Apply("lt" | "le" as fn, (x, y)):
                form = linear(y - x + e)
            case Apply("gt" | "ge" as fn, (x, y)):
                form = linear(x - y + e)
            case _:
                continue
        # The condition is e < end exactly where nothing but sizes is left of `end - e`, with e added.
        if form is not None and form.terms and all(is_size(a) for atom, _ in form.terms for a in axes_in(atom)):
            return simplify(form.expr() + int(fn in ("le", "ge")))
    return Const(extent)


def _reach(inner: Expr) -> Expr | None:
    """The largest value of a subscript, in terms of sizes; None where no axis has a limit, or a term is negative."""
    form = linear(inner)
    if form is None or not any(isinstance(a, Axis) and a.limit is not None for a, _ in form.terms):
        return None
    total: Expr = Const(form.constant)
    for atom, c in form.terms:
        if not isinstance(atom, Axis) or c < 0:
            return None
        total = total + (atom.stop - 1) * c
    return total


def _walks_output(e: Expr, out: Sequence[Axis]) -> bool:
    return any(a in out for a in axes_in(e))


def _copy(load: Load, ends: Sequence[Expr], dims: list[_Dim], kept: list[_Dim], name: str, param: Param) -> Packed:
    """The loops of the copy; dimensions that are not kept are fixed outside."""
    buffer = Param(name, Type(param.dtype, tuple(x.extent for x in kept)))
    axes = {x.number: Axis(f"h{x.number}", x.extent, x.limit) for x in kept}
    source = tuple(simplify(x.source + axes.get(x.number, Const(0))) for x in dims)
    inside: dict[Axis | None, Expr | None] = {}
    order = [axes[x.number] for x in kept]
    for e, end in zip(source, ends, strict=True):
        for check in (e >= 0, e < end):
            check = simplify(check)
            if check != TRUE:
                last = next((a for a in reversed(order) if a in axes_in(check)), None)
                inside[last] = both(inside.get(last), check)
    place = offset(tuple(order), buffer.shape)
    value = Load(load.param, (offset(source, param.shape),))
    body: tuple[Stmt, ...] = (Store(name, place, value),)
    past: tuple[Stmt, ...] = (Store(name, place, zero(param.dtype)),)
    for axis in reversed(order):
        guard = inside.get(axis)
        body = (loop(axis, *body),) if guard is None else divided(axis, guard, body, past)
        past = (loop(axis, *past),)
    if inside.get(None) is not None:
        body = (If(inside[None] or TRUE, body, past),)
    index = tuple(x.inside for x in kept)
    return Packed(buffer, Load(name, index), body)


def linear_atoms(e: Expr) -> tuple[Expr, ...]:
    """The atoms of a linear form."""
    form = linear(e)
    return () if form is None else tuple(a for a, _ in form.terms)


def evaluated(e: Expr, tensors: Mapping[str, Param], dtype: DType, axes: Sequence[Axis], block: Block | None) -> Packed:
    """The values of an operand that is more than a load, computed once: dimensions are its axes."""
    parts = {
        a: Axis(f"h{k}", block.size) if block and a == block.axis else a.named(f"h{k}") for k, a in enumerate(axes)
    }
    buffer = Param("pa", Type(dtype, tuple(p.extent for p in parts.values())))
    start = {a: p + block.start if block and a == block.axis else p for a, p in parts.items()}
    value = flat_expr(substitute(e, start), tensors)
    body: tuple[Stmt, ...] = (Store("pa", offset(tuple(parts.values()), buffer.shape), value),)
    for a, p in reversed(parts.items()):
        if block and a == block.axis:
            stop = apply("min", Const(block.size), a.stop - block.start)
            body = (For(p, Const(0), stop, body),)
        else:
            body = (loop(p, *body),)
    index = tuple(a - block.start if block and a == block.axis else a for a in axes)
    return Packed(buffer, Load("pa", index), body)


def panel(
    e: Expr,
    tensors: Mapping[str, Param],
    product: DType,
    column: Axis,
    reduced: Sequence[Axis],
    width: int,
    base: Axis,
    lanes: int,
) -> Packed:
    """`width` columns of an operand, all of the reduction: [reduced…][width], zero past the last column.

    An operand that chooses between literals has the type of the `product`.

    Whole panels are written in vectors of `lanes`, where the operand has a form for them.
    """
    lane = Axis("hj", width)
    parts = {a: a.named(f"h{k}") for k, a in enumerate(reduced)}
    dtype = Kernel(tuple(tensors.values()), (), (), ()).dtype_of(e) or product
    buffer = Param("pb", Type(dtype, (*(a.extent for a in reduced), width)))
    place = offset((*parts.values(), lane), buffer.shape)
    spot = base * width + lane
    value = flat_expr(substitute(e, {**parts, column: spot}), tensors)
    write: tuple[Stmt, ...] = (Store("pb", place, value),)
    if column.extent % width:
        write = (If(spot < column.extent, write, (Store("pb", place, zero(dtype)),)),)
    body: tuple[Stmt, ...] = (loop(lane, *wrap(tuple(parts.values()), write)),)
    dtypes = {name: p.dtype for name, p in tensors.items()}
    vectors: list[Stmt] = []
    for first in range(0, width, lanes):
        each = Axis("lane", lanes)
        value = flat_expr(substitute(e, parts), tensors)
        whole = vectorise(value, {column: base * width + first + each}, each, dtypes, dtype)
        if whole is not None and has_lanes(whole) and not isinstance(e, Load):
            vectors.append(Store("pb", offset((*parts.values(), Const(first)), buffer.shape), whole, lanes))
    if len(vectors) * lanes == width:
        fast = wrap(tuple(parts.values()), tuple(vectors))
        body = fast if column.extent % width == 0 else (If(base * width + width <= column.extent, fast, body),)
    return Packed(buffer, Load("pb", (*reduced, column - base * width)), body)


def is_bare(e: Expr) -> bool:
    """Whether an operand is a load without data in its subscripts."""
    return isinstance(e, Load) and all(is_index(i) for i in e.index)
