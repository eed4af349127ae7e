"""Parts of an expression that C computes once, in variables of their own."""

from __future__ import annotations

from dlc.kernel.expr import Apply, Expr, Load
from dlc.kernel.loops.program import parts
from dlc.kernel.simplify import is_index
from dlc_backend_c import spelling


def shared_parts(e: Expr) -> list[Expr]:
    """Applied functions that occur more than once and are certainly evaluated, inner ones first.

    The branches of `select` and the right sides of `and`, `or` may be skipped at run time, and their loads with them.
    """
    uses: dict[Expr, int] = {}
    certain: set[Expr] = set()
    done: list[Expr] = []
    stack: list[tuple[Expr, bool, bool]] = [(e, True, False)]
    while stack:
        x, sure, leaving = stack.pop()
        if leaving:
            done.append(x)
            continue
        if not isinstance(x, Apply | Load) or is_index(x):
            continue
        uses[x] = uses.get(x, 0) + 1
        if uses[x] > 1 and (not sure or x in certain):
            continue
        if sure:
            certain.add(x)
        if uses[x] == 1:
            stack.append((x, sure, True))
        lazy = isinstance(x, Apply) and x.fn in spelling.LAZY
        stack.extend((p, sure and not (lazy and k > 0), False) for k, p in enumerate(parts(x)))
    return [x for x in dict.fromkeys(done) if isinstance(x, Apply) and uses[x] > 1 and x in certain]
