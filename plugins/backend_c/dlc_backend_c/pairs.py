"""Which functions some gcc must not turn conditions into masks of.

    for i < 6: for j < 2: r[2·i + j] = i >= 2 ? p[2·i + j - 4] : 0      →      zeros in rows 2 and 3 as well

gcc 12.2 unrolls such an inner loop, takes its two loads as one group under a mask, and gives pairs the mask of other
pairs (it drops permutations of masked loads: GCC PR tree-optimization/114375, mended in 12.4, 13.3 and 14). Groups of
any other size are right, and so are loops that keep their branches, so that only these functions carry an attribute,
and only versions that may be mistaken see it.
"""

from __future__ import annotations

from typing import Final

from dlc.kernel.expr import Apply, Const, Expr, Load
from dlc.kernel.loops import Block, For, If, Program, Stmt, exprs_of, parts, walk_stmts

MACRO: Final = "DLC_BRANCHES"
DEFINITION: Final = f"""
/* gcc before 14 may give pairs of loads the mask of other pairs (GCC PR 114375). */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14
#define {MACRO} __attribute__((optimize("no-tree-loop-if-convert")))
#else
#define {MACRO}
#endif
"""


def mark(program: Program) -> str:
    """What stands in front of a function's definition: the macro and a blank, or nothing."""
    return f"{MACRO} " if loads_pairs(program) else ""


def loads_pairs(program: Program) -> bool:
    """Whether a loop inside another runs twice and loads something, on a condition."""
    return any(_at_risk(s, looped=False, guarded=False) for s in program.body)


def _at_risk(stmt: Stmt, *, looped: bool, guarded: bool) -> bool:
    match stmt:
        case For(body=body):
            if looped and _rounds(stmt) == 2 and _loads_by_condition(body, guarded=guarded):
                return True
            return any(_at_risk(s, looped=True, guarded=guarded) for s in body)
        case If(_, then, otherwise):
            return any(_at_risk(s, looped=looped, guarded=True) for s in (*then, *otherwise))
        case Block(body):
            return any(_at_risk(s, looped=looped, guarded=guarded) for s in body)
        case _:
            return False


def _rounds(stmt: Stmt) -> int:
    """How often the innermost statements of a loop run: gcc unrolls loops from the inside out."""
    match stmt:
        case For(_, Const(start), Const(stop), body, step):
            return -(-(int(stop) - int(start)) // step) * max(map(_rounds, body), default=1)
        case For(axis, _, _, body, step):
            return -(-axis.extent // step) * max(map(_rounds, body), default=1)
        case If(_, then, otherwise):
            return max(map(_rounds, (*then, *otherwise)), default=1)
        case Block(body):
            return max(map(_rounds, body), default=1)
        case _:
            return 1


def _loads_by_condition(body: tuple[Stmt, ...], *, guarded: bool) -> bool:
    inside = tuple(walk_stmts(body))
    found = [x for s in inside for e in exprs_of(s) for x in _walk(e)]
    conditional = guarded or any(isinstance(s, If) for s in inside)
    conditional = conditional or any(isinstance(x, Apply) and x.fn == "select" for x in found)
    return conditional and any(isinstance(x, Load) for x in found)


def _walk(e: Expr) -> list[Expr]:
    found, stack = list[Expr](), [e]
    while stack:
        e = stack.pop()
        found.append(e)
        stack.extend(parts(e))
    return found
