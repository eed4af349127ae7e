"""Flags of the user's that would break generated C, taken back for its functions.

Helpers declare what they need of floating point (`dlc_backend_c.needs`): some round to whole numbers by adding and
taking away 1.5 * 2^23, split constants in two, keep a NaN by x != x, or use the sign of zero. -ffast-math and its parts
(-Ofast, -funsafe-math-optimizations, -fassociative-math, -ffinite-math-only, …) say that the program does not: softmax
was wrong by 0.84. The functions of a program are compiled without them, also where it is part of the user's unit, as
far as the compiler can; where it cannot, an error says so. What may be added in another order for speed is decided when
loops are made (`--math`), not by these flags.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dlc_backend_c.needs import FAST, FINITE, Need
from dlc_backend_c.sections import PUSH

KERNELS: Final = frozenset({Need.ASSOCIATION, Need.DIVISION, Need.NAN, Need.SIGNED_ZEROS})
"""What the text of kernels needs by itself: `--math` has decided about order and quotients, and `isnan` is an op."""
_WIDE: Final = "this program needs floats that are rounded to their type: add -mfpmath=sse"


def definition(needs: Collection[Need]) -> str:
    """What a program begins with whose helpers have these needs."""
    every = [need.value for need in Need if need in {*needs, *KERNELS}]
    taken = " || ".join((FAST, *(condition for e in every for condition in e.taken)))
    off = ", ".join(f'"{flag}"' for flag in ("no-fast-math", *(flag for e in every for flag in e.flags)))
    refused = "".join(f'#if {e.refused}\n#error "{_WIDE}"\n#endif\n' for e in every if e.refused)
    return f"""\
#if defined(__GNUC__) && !defined(__clang__)
{PUSH}#endif
#if defined(__clang__)
#if __clang_major__ >= 13 && ({FAST} || {FINITE})
#pragma float_control(precise, on)
#pragma clang fp contract(fast)
#elif __clang_major__ >= 13
#pragma clang fp reassociate(off)
#elif {FAST} || {FINITE}
#error "this program needs NaN, and sums in order: compile it without -ffast-math, or by clang 13 or newer"
#endif
#elif defined(__GNUC__) && ({taken})
#pragma GCC optimize ({off})
#elif {FAST} || {FINITE}
#error "this program needs NaN, and sums in order: compile it without -ffast-math"
#endif
{refused}"""
