"""Which vectors gcc must keep in a register once they are loaded.

    b = p[i .. +16]; c0 += a0*b; c1 += a1*b; c2 += a2*b      →      three loads of p[i .. +16]

gcc takes a variable that is loaded once for equal to its place in memory, and multiplies by what lies there wherever an
instruction can. A vector that lies across two lines of the cache takes two loads each time. An empty assembler
statement that may change the variable keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dlc.base.types import f32, f64
from dlc.kernel.expr import Axis, Expr, Load, walk
from dlc.kernel.loops.program import Lanes, Let, Local, Set, Stmt
from dlc.kernel.simplify import linear

VECTOR: Final = """\
/* For several sums: gcc would load it again for each of them. */
DLC_INLINE @V dlc_kept_@V(@V x)
{
#if defined(__GNUC__) && !defined(__clang__) && defined(@WITH)
    __asm__("" : "+v"(x));
#endif
    return x;
}
"""
MOST: Final = 4
"""Uses up to which a variable is not kept anyway."""


def kept(body: Sequence[Stmt], steps: Mapping[str, int]) -> frozenset[Local]:
    """The variables among statements in a row that hold vectors across lines, and that a few sums use.

    `steps` of the loops around, by axis.
    """
    loads = [
        s.local for s in body if isinstance(s, Let) and s.local.dtype in (f32, f64) and _across_lines(s.value, steps)
    ]
    uses = dict.fromkeys(loads, 0)
    for s in body if uses else ():
        if isinstance(s, Set):
            for local in {x for x in walk(s.value) if isinstance(x, Local) and x in uses}:
                uses[local] += 1
    return frozenset(local for local, count in uses.items() if 1 < count <= MOST)


def _across_lines(value: Expr, steps: Mapping[str, int]) -> bool:
    match value:
        case Lanes(Load(_, (at,)), lanes, 1):
            form = linear(at)
            moves = [] if form is None else [c * steps.get(x.name, 1) for x, c in form.terms if isinstance(x, Axis)]
            return form is None or any(n % lanes for n in (form.constant, *moves))
        case _:
            return False
