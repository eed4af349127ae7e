"""Which functions the vectoriser of some gcc must leave alone.

    for i < 8: for j < 5: a += p[5·i - j + 4]      →      some elements counted twice, others not at all

gcc before 12.4 and 13.2 unrolls such an inner loop, takes its loads as one permuted group, and forgets the permutation
when it sums in order (GCC PR tree-optimization/110381). Sums without a permutation are right, and so is every other
compiler, so that only these functions carry an attribute, and only these versions see it.
"""

from __future__ import annotations

from typing import Final

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, map_loads
from dlc.kernel.loops.program import Block, For, If, LoopProgram, Set, Stmt, Store, exprs_of, parts, walk_stmts
from dlc.kernel.simplify import linear

MACRO: Final = "DLC_IN_ORDER"
DEFINITION: Final = f"""
/* gcc before 12.4 and 13.2 sums rows that are read backwards wrongly (GCC PR 110381). */
#if defined(__GNUC__) && !defined(__clang__) && \\
    (__GNUC__ < 12 || (__GNUC__ == 12 && __GNUC_MINOR__ < 4) || (__GNUC__ == 13 && __GNUC_MINOR__ < 2))
#define {MACRO} __attribute__((optimize("no-tree-loop-vectorize")))
#else
#define {MACRO}
#endif
"""
_UNROLLED: Final = 64
"""Iterations that gcc may unroll completely (16 of a loop, unless options say otherwise), with a margin."""


def mark(program: LoopProgram) -> str:
    """What stands in front of a function's definition: the macro and a blank, or nothing."""
    return f"{MACRO} " if sums_permuted(program) else ""


def sums_permuted(program: LoopProgram) -> bool:
    """Whether a short loop sums floats one by one, and reads a tensor in another order than it lies."""
    return any(_at_risk(s) for s in walk_stmts(program.body))


def _at_risk(stmt: Stmt) -> bool:
    match stmt:
        case For(axis, _, _, body, _) if _rounds(stmt) <= _UNROLLED:
            inside = tuple(walk_stmts(body))
            return any(_is_sum(s) for s in inside) and any(_reads(e, axis) for s in inside for e in exprs_of(s))
        case _:
            return False


def _rounds(stmt: Stmt) -> int:
    """How often its innermost statements run: gcc unrolls loops from the inside out, while that is little."""
    match stmt:
        case For(axis, _, _, body, _):
            return axis.extent * max(map(_rounds, body), default=1)
        case If(_, then, otherwise):
            return max(map(_rounds, (*then, *otherwise)), default=1)
        case Block(body):
            return max(map(_rounds, body), default=1)
        case _:
            return 1


def _is_sum(stmt: Stmt) -> bool:
    """`x = x + …` of a variable or an element. Products and extremes may be reordered alike, so they count too.

    What adds whole vectors has been vectorised already.
    """
    match stmt:
        case Set(local, Apply(_, args)):
            return local.lanes == 1 and local.dtype.is_float and local in args
        case Store(out, at, Apply(_, args), lanes):
            return lanes == 1 and Load(out, (at,)) in args
        case _:
            return False


def _reads(e: Expr, axis: Axis) -> bool:
    """Whether a load's subscript falls, or is rounded or wrapped, as an axis rises; data are no permutation."""
    stack = [e]
    while stack:
        e = stack.pop()
        if isinstance(e, Load) and axis in axes_in(map_loads(e.index[0], lambda _: Const(0))):
            form = linear(e.index[0])
            if form is None or any((k < 0 or atom != axis) and axis in axes_in(atom) for atom, k in form.terms):
                return True
        stack.extend(parts(e))
    return False
