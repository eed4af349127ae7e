"""Loops as text: one statement a line, what is inside a loop indented. `dlc.kernel.loops.parse` reads it.

for i0 in 0..8:
  for i1<8 in 0..4 step 2:
    r0[8*i0+i1] = (p0[8*i0+i1]+p0[8*i0+i1+8]+p0[8*i0+i1+16])/3.0

A variable's extent stands behind its name where the loop does not end there; a `limit` behind `to`. Variables that are
sizes of a call have an extent as well: `size0<64: i64 = p1[0]-1`. Loops whose iterations may run at the same time say
so, and which buffers each iteration has to itself: `for i in 0..8 parallel own (tile0):`. Of those in the workspace
there is one for each thread: `t0: f32[4096] in the workspace times 4`. Compilers are told how many iterations
to write out: `unroll 1`. A loop that is a function of its own stands `apart`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.loops.program import (
    Block,
    Dots,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Pick,
    Prefetch,
    Set,
    Shuffle,
    Stmt,
    Store,
    Words,
    axes_of,
    walk_stmts,
)
from dlc.kernel.nest import Param
from dlc.kernel.print import print_expr

_INDENT = "  "


def print_loops(program: LoopProgram) -> str:
    """Parameters, results, working memory, then the statements. Tensors are flat: a subscript counts elements."""
    aligned = " aligned" if program.aligned else ""
    head = f"loops({_tensors(program.params)}) -> ({_tensors(program.results)}){aligned} {{"
    buffers = [
        f"{_INDENT}{b.name}: {b.type} {'on the stack' if b.stack else 'in the workspace'}"
        f"{f' below {b.below}' if b.below is not None else ''}{f' times {b.copies}' if b.copies > 1 else ''}"
        f"{' digits' * b.digits}"
        for b in program.buffers
    ]
    return "\n".join([head, *buffers, *_lines(program.body, 1, sizes_of(program)), "}"])


def sizes_of(program: LoopProgram) -> dict[str, int]:
    """Extents of the variables that are sizes of a call."""
    declared = {s.local.name for s in walk_stmts(program.body) if isinstance(s, Let)}
    return {a.name: a.extent for a in axes_of(program.body) if a.name in declared}


def _tensors(params: tuple[Param, ...]) -> str:
    return ", ".join(
        f"{p.name}: {p.type}{f' stored as {p.stored}' if p.stored else ''}{' packed' if p.packed else ''}"
        for p in params
    )


def _lines(body: tuple[Stmt, ...], depth: int, sizes: Mapping[str, int]) -> Iterator[str]:
    for stmt in body:
        yield _INDENT * depth + print_head(stmt, sizes)
        match stmt:
            case For(_, _, _, inner, _) | Block(inner):
                yield from _lines(inner, depth + 1, sizes)
            case If(_, then, otherwise):
                yield from _lines(then, depth + 1, sizes)
                if otherwise:
                    yield f"{_INDENT * depth}else:"
                    yield from _lines(otherwise, depth + 1, sizes)
            case _:
                pass


def print_head(stmt: Stmt, sizes: Mapping[str, int]) -> str:
    """A statement without those inside it; `sizes` are the extents of variables that are sizes of a call."""
    match stmt:
        case For(axis, start, stop, _, step, parallel, own, unroll, apart):
            extent = "" if stop == Const(axis.extent) else f"<{axis.extent}"
            limit = "" if axis.limit is None else f" to {_text(axis.limit)}"
            how = f" step {step}" * (step > 1) + f" unroll {unroll}" * (unroll > 0) + " apart" * apart
            how += " parallel" * parallel + f" own ({', '.join(own)})" * bool(own)
            return f"for {axis.name}{extent}{limit} in {_text(start)}..{_text(stop)}{how}:"
        case If(condition, _, _):
            return f"if {_text(condition)}:"
        case Let(local, value):
            extent = f"<{sizes[local.name]}" if local.name in sizes else ""
            return f"{local.name}{extent}: {local.dtype}{f'x{local.lanes}' * (local.lanes > 1)} = {_text(value)}"
        case Set(local, value):
            return f"{local.name} = {_text(value)}"
        case Store(out, at, value, lanes, past):
            return f"{_element(out, at, lanes)} = {_text(value)}{' past caches' * past}"
        case Prefetch(tensor, at, write, hint):
            return f"prefetch {_element(tensor, at, 1)} to {'write' if write else 'read'}{f' {hint}' if hint else ''}"
        case Block():
            return "block:"


def _element(tensor: str, at: Expr, lanes: int, step: int = 1) -> str:
    return f"{tensor}[{_text(at)}{f' .. +{lanes}{_apart(step)}' if lanes > 1 else ''}]"


def _apart(step: int) -> str:
    return f" by {step}" if step > 1 else ""


def _text(e: Expr) -> str:
    return print_expr(_spelled(e))


def _spelled(e: Expr) -> Expr:
    """The expression with variables and vectors as axes of their spelling: both print as atoms."""
    match e:
        case Local(name, _, _):
            return Axis(name, 0)
        case Lanes(Load(param, (at,)), lanes, step):
            return Axis(_element(param, at, lanes, step), 0)
        case Words(Load(param, (at,)), lanes, step):
            return Axis(f"{param}[{_text(at)} .. +{lanes} words{_apart(step)}]", 0)
        case Fold(fn, vector):
            return Axis(f"{fn} of {vector.name}", 0)
        case Dots(a, b):
            return Axis(f"dots of {a.name} and {b.name}", 0)
        case Shuffle(a, b, order):
            second = "" if a == b else f" and {b.name}"
            return Axis(f"shuffle of {a.name}{second} by ({', '.join(map(str, order))})", 0)
        case Pick(parts, Lanes(Load(param, (at,)), lanes), ahead):
            names = " and ".join(x.name for x in parts)
            return Axis(f"pick of {names} by {_element(param, at, lanes)}{f' ahead {ahead}' if ahead else ''}", 0)
        case Load(param, index):
            return Load(param, tuple(_spelled(i) for i in index))
        case Apply(fn, args):
            return Apply(fn, tuple(_spelled(a) for a in args))
        case _:
            return e
