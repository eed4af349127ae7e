"""How far loops go behind the last element of a call, in tensors that are laid out for the largest sizes.

    for i<n: for j<16: r[16*i + j]          n rows of 16: not at all
    for i<(n+5)//6: r[6*i + 5]              whole tiles of six rows: at most 5 rows more than there are

That is the largest subscript minus the last element of a call: a number for all sizes (`Largest`), or unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dlc.base.extents import Extent, not_negative, smaller, symbols
from dlc.base.polynomials import Symbol
from dlc.base.types import Type
from dlc.kernel.expr import Apply, Axis, Expr, Load, apply
from dlc.kernel.loops.program import (
    Block,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Set,
    Stmt,
    Store,
    exprs_of,
    subexpressions,
    walk_stmts,
)
from dlc.kernel.schedules.extents import in_sizes, size_axes
from dlc.kernel.schedules.largest import Largest, Loops
from dlc.kernel.simplify import INDEX_FUNCTIONS, is_index, linear

ANYTHING: Final = 1 << 62
"""Numbers that data may be, around 0; what is not clamped is farther behind any end than there is memory."""


def overruns(program: LoopProgram) -> tuple[int | None, ...]:
    """For every parameter, then every result: elements behind `Type.reach` that are read or written; None: unknown.

    Tensors without open dimensions, and those that nobody touches, have 0.
    """
    tensors = (*program.params, *program.results)
    behind = _behind(program, {p.name: p.type for p in tensors})
    return tuple(behind[p.name] for p in tensors)


def lengths(program: LoopProgram) -> Mapping[str, Extent]:
    """For every buffer in the workspace the elements that a call needs, as far as loops show; else its whole size."""
    buffers = {b.name: b for b in program.buffers if not b.stack}
    behind = _behind(program, {name: b.type for name, b in buffers.items()})
    needed = ((b, behind[name]) for name, b in buffers.items())
    return {b.name: b.size if n is None else smaller(not_negative(b.type.reach + n), b.size) for b, n in needed}


def in_program(extent: Extent, program: LoopProgram) -> Expr:
    """A length of buffers as an expression over what `sizes_first` reads."""
    return in_sizes(extent, _leaves(program))


def _behind(program: LoopProgram, types: Mapping[str, Type]) -> Mapping[str, int | None]:
    open_ = {name: of for name, of in types.items() if of.is_open}
    if not open_:
        return dict.fromkeys(types, 0)
    leaves, below = _leaves(program), _below(program)
    found: dict[str, int | None] = dict.fromkeys(open_, 0)
    for tensor, last, loops in _touched(program, open_):
        known = found[tensor]
        if known is not None:
            of = open_[tensor]
            over = _placed(last, below) - in_sizes(of.reach - 1, leaves) if _has(of, leaves) else None
            largest = None if over is None else Largest(loops).of(over)
            found[tensor] = None if largest is None else max(known, largest)
    return dict.fromkeys(types, 0) | found


def _leaves(program: LoopProgram) -> Mapping[Symbol, Expr]:
    """The units of every symbol as the subscripts of a program know them."""
    axes = size_axes(p.type.symbol for p in program.params if p.type.symbol is not None)
    return {s: axis + s.low for s, axis in axes.items()}


def _below(program: LoopProgram) -> Mapping[str, int]:
    """Buffers and variables that hold numbers from 0 on → what these are below."""
    found = {b.name: b.below for b in program.buffers if b.below is not None}
    values: dict[str, list[Expr]] = {}
    for s in walk_stmts(program.body) if found else ():
        if isinstance(s, Let | Set):
            values.setdefault(s.local.name, []).append(s.value)

    def end(value: Expr) -> int | None:
        match value:
            case Load(name, _):
                return found.get(name)
            case Apply("i64", (Axis(_, extent),)):
                return extent
            case _:
                return None

    for name, all_values in values.items():
        ends = [e for v in all_values if (e := end(v)) is not None]
        if len(ends) == len(all_values):
            found[name] = max(ends)
    return found


def _placed(e: Expr, below: Mapping[str, int]) -> Expr:
    """A subscript with a variable in place of everything that data decide, which clamps mostly stand around."""
    data: dict[Expr, Expr] = {}

    def held(e: Expr) -> Expr:
        if e not in data:
            name, limit = f"data{len(data)}", below.get(_name(e))
            data[e] = Axis(name, limit) if limit is not None else Axis(name, ANYTHING) - ANYTHING // 2
        return data[e]

    def walk(e: Expr) -> Expr:
        match e:
            case _ if is_index(e):
                return e
            case Apply(fn, args) if fn in INDEX_FUNCTIONS:
                return apply(fn, *map(walk, args))
            case Apply("i64", (x,)):  # of floats nothing is known either way
                return walk(x)
            case _:
                return held(e)

    return walk(e)


def _name(e: Expr) -> str:
    return e.param if isinstance(e, Load) else e.name if isinstance(e, Local) else ""


def _has(of: Type, leaves: Mapping[Symbol, Expr]) -> bool:
    return set(symbols(*of.shape)) <= set(leaves)


def _touched(program: LoopProgram, names: Mapping[str, Type]) -> Iterator[tuple[str, Expr, Loops]]:
    """(tensor, its largest subscript there, loops around); of subscripts that differ by a number, the largest one."""
    for body, loops in _bodies(program.body, {}):
        most: dict[tuple[str, object], tuple[int, Expr]] = {}
        for tensor, at, lanes in _accesses(body):
            if tensor not in names:
                continue
            form = linear(at)
            key: object = at if form is None else frozenset(form.terms)
            constant = lanes - 1 + (0 if form is None else form.constant)
            if (tensor, key) not in most or most[tensor, key][0] < constant:
                most[tensor, key] = constant, at + (lanes - 1)
        for (tensor, _), (_, last) in most.items():
            yield tensor, last, loops


def _bodies(body: tuple[Stmt, ...], loops: Loops) -> Iterator[tuple[tuple[Stmt, ...], Loops]]:
    """Statements that have the same loops around them."""
    yield body, loops
    for s in body:
        match s:
            case For(axis, _, _, inner, _):
                yield from _bodies(inner, {**loops, axis.name: (len(loops) + 1, s)})
            case If(_, then, otherwise):
                yield from _bodies(then, loops)
                yield from _bodies(otherwise, loops)
            case Block(inner):
                yield from _bodies(inner, loops)
            case _:
                pass


def _accesses(body: tuple[Stmt, ...]) -> Iterator[tuple[str, Expr, int]]:
    """(tensor, first subscript, how many elements) of what these statements touch themselves."""
    for s in body:
        if isinstance(s, Store):
            yield s.out, s.at, s.lanes
        for e in subexpressions(exprs_of(s)):
            match e:
                case Lanes(Load(name, (at,))):
                    yield name, at, e.span
                case Load(name, (at,)):
                    yield name, at, 1
                case _:
                    pass
