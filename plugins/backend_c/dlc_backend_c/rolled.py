"""How far gcc unrolls loops, and which ones it must not before it has made vectors of them.

    for i < 8: r[i] = p[i] > 0 ? q[i] : 0      →      eight branches, or a vector

gcc unrolls an inner loop of up to 16 iterations before it looks for vectors, and then finds none: programs are compiled
without vectors of statements, and conditions have become branches. One that chooses between elements which lie next to
each other stays a loop until then. Of other loops, programs say how many iterations are to be written out.
"""

from __future__ import annotations

from typing import Final

from dlc.kernel.expr import Apply, Const, walk
from dlc.kernel.loops.program import For, Store
from dlc.kernel.simplify import linear

MACRO: Final = "DLC_UNROLL"
DEFINITION: Final = f"""
/* gcc makes no vectors of short loops with conditions that it has unrolled, and long code of some where none is due. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define {MACRO}_TEXT(text) _Pragma(#text)
#define {MACRO}(n) {MACRO}_TEXT(GCC unroll n)
#else
#define {MACRO}(n)
#endif
"""
LEAST, MOST = 4, 16
"""Iterations: a multiple of the least vector's elements, and as many as gcc unrolls completely."""


def mark(loop: For) -> str:
    """What stands in front of a loop: the macro and a blank, or nothing."""
    count = loop.unroll or stays_rolled(loop)
    return f"{MACRO}({int(count)}) " if count else ""


def stays_rolled(loop: For) -> bool:
    """Whether all that a short loop does is to store neighbours that conditions choose."""
    match loop:
        case For(axis, Const(start), Const(stop), body, 1):
            rounds = int(stop) - int(start)
        case _:
            return False
    if not LEAST <= rounds <= MOST or rounds % LEAST:
        return False
    for s in body:
        if not isinstance(s, Store) or s.lanes != 1:
            return False
        form = linear(s.at)
        if form is None or form.coefficient(axis) != 1:
            return False
        if not any(isinstance(e, Apply) and e.fn == "select" for e in walk(s.value)):
            return False
    return bool(body)
