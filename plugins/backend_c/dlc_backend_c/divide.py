"""Large programs as several C functions, which are called one after another.

    for i: r[i] = p0[i]                 f(p0, r); f(p1, r + 64)
    for i: r[64 + i] = p1[i]      →     f: for i: arg1[i] = arg0[i]

Compilers take time that grows faster than a function, and C promises no more than 127 arguments to one. Everything in a
part is named after its place and addressed relative to it, so that parts that do the same are one function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dlc.kernel.expr import Expr, Load
from dlc.kernel.loops.program import (
    Let,
    Local,
    LoopProgram,
    Prefetch,
    Set,
    Stmt,
    Store,
    axes_of,
    exprs_of,
    subexpressions,
    walk_stmts,
    writes,
)
from dlc.kernel.loops.rename import Renaming
from dlc.kernel.nest import Param
from dlc.kernel.schedules.extents import sizes_first
from dlc.kernel.simplify import linear

MOST_STATEMENTS: Final = 64
"""Of a program that stays one function, those inside of others not counted."""
PART: Final = 32
"""Statements of a part."""
MOST_ARGUMENTS: Final = 127
"""Of a function (C99, 5.2.4.1). A statement that needs more is a part by itself."""


@dataclass(frozen=True)
class Part:
    """Some statements as a program of their own.

    Attributes:
        program: What it reads only are its parameters, what it writes its results.
        arguments: For each of them, the tensor or buffer of the whole that it is, and its first element there.
    """

    program: LoopProgram
    arguments: tuple[tuple[str, int], ...]


def divide(program: LoopProgram) -> tuple[LoopProgram, tuple[Part, ...]]:
    """The program with the buffers that it needs when it runs in parts, and the parts in order; none if it is small."""
    count = len(program.params) + len(program.results)
    if len(program.body) <= MOST_STATEMENTS and (count <= MOST_ARGUMENTS or len(program.body) == 1):
        return program, ()
    sizes, body = sizes_first(program)
    found = [(part, _accesses(part)) for part in (_sized(b, sizes) for b in _filled(body))]
    homes = Counter(name for _, accesses in found for name in accesses)
    # What several parts use outlives each of their stack frames.
    buffers = tuple(replace(b, stack=b.stack and homes[b.name] <= 1) for b in program.buffers)
    whole = replace(program, buffers=buffers)
    return whole, tuple(_part(whole, body, accesses) for body, accesses in found)


def _sized(body: tuple[Stmt, ...], sizes: tuple[Let, ...]) -> tuple[Stmt, ...]:
    """The statements of a part behind those that read the sizes that it uses."""
    used = {a.name for a in axes_of(body)} if sizes else ()
    return (*(s for s in sizes if s.local.name in used), *body)


def _filled(statements: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """The statements in order, as many together as a part may have."""
    body: list[Stmt] = []
    names: set[str] = set()
    for unit in _units(statements):
        more = _accesses(unit).keys()
        if body and (len(body) + len(unit) > PART or len(names | more) > MOST_ARGUMENTS):
            yield tuple(body)
            body, names = [], set()
        body += unit
        names |= more
    if body:
        yield tuple(body)


def _units(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """Runs of statements that variables hold together."""
    last = {name: k for k, s in enumerate(body) for name in _variables((s,))}
    unit: list[Stmt] = []
    end = 0
    for k, s in enumerate(body):
        unit.append(s)
        if isinstance(s, Let):
            end = max(end, last[s.local.name])
        if k >= end:
            yield tuple(unit)
            unit = []


def _part(whole: LoopProgram, body: tuple[Stmt, ...], accesses: Mapping[str, list[Expr]]) -> Part:
    tensors = {p.name: p for p in (*whole.params, *whole.results)}
    tensors |= {b.name: Param(b.name, b.type) for b in whole.buffers}
    stack = {b.name: b for b in whole.buffers if b.stack}
    written = writes(body)
    outside = [name for name in accesses if name not in stack]
    arguments = [n for n in outside if n not in written] + [n for n in outside if n in written]
    own = [name for name in accesses if name in stack]
    names = {n: f"arg{k}" for k, n in enumerate(arguments)} | {n: f"own{k}" for k, n in enumerate(own)}
    shifts = {n: _first(accesses[n], tensors[n]) for n in arguments}

    def place(name: str, at: Expr) -> Expr:
        form = linear(at) if shifts.get(name) is not None else None
        return at if form is None else replace(form, constant=form.constant - (shifts[name] or 0)).expr()

    own_sizes = {s.local.name for s in sizes_first(replace(whole, body=body))[0]}  # subscripts know them as they are
    variables = {name: f"var{k}" for k, name in enumerate(v for v in _variables(body) if v not in own_sizes)}
    params = tuple(replace(tensors[n], name=names[n]) for n in arguments if n not in written)
    results = tuple(replace(tensors[n], name=names[n]) for n in arguments if n in written)
    buffers = tuple(replace(stack[n], name=names[n]) for n in own)
    changed = Renaming(names, variables, place).body(body)
    part = LoopProgram(params, results, buffers, changed, whole.aligned)
    return Part(part, tuple((n, shifts[n] or 0) for n in arguments))


def _first(places: list[Expr], of: Param) -> int | None:
    """A number to take from all of these subscripts, so that those of equal parts become equal; None: they stay."""
    forms = [linear(at) for at in places]
    if any(f is None for f in forms):
        return None
    first = min(f.constant for f in forms if f is not None)
    if of.packed:
        first -= first % of.storage.per_byte
    # The pointer must stay inside of the tensor.
    return first if 0 <= first < of.type.capacity else None


def _accesses(body: tuple[Stmt, ...]) -> Mapping[str, list[Expr]]:
    """Every tensor and buffer that the statements name, in order of appearance, with its flat subscripts."""
    found: dict[str, list[Expr]] = {}
    for s in walk_stmts(body):
        match s:
            case Store(name, at, _, _) | Prefetch(name, at, _):
                found.setdefault(name, []).append(at)
            case _:
                pass
        for e in subexpressions(exprs_of(s)):
            if isinstance(e, Load):
                found.setdefault(e.param, []).extend(e.index)
    return found


def _variables(body: tuple[Stmt, ...]) -> Mapping[str, None]:
    """Names of variables in order of appearance."""
    found: dict[str, None] = {}
    for s in walk_stmts(body):
        if isinstance(s, Let | Set):
            found[s.local.name] = None
        found.update((e.name, None) for e in subexpressions(exprs_of(s)) if isinstance(e, Local))
    return found
