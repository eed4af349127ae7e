"""Flags of the user's that would break helpers of generated C, taken back for its functions.

Helpers round to whole numbers by adding and taking away 1.5 * 2^23, split constants in two, keep a NaN by x != x, and
use the sign of zero: they need sums in the order in which they are written, NaN, infinities and signed zeros.
-ffast-math and its parts (-Ofast, -funsafe-math-optimizations, -fassociative-math, -ffinite-math-only, …) say that the
program does not: softmax was wrong by 0.84. The functions of a program are compiled without them, also where it is part
of the user's unit, as far as the compiler can; where it cannot, an error says so. What may be added in another order
for speed is decided when loops are made (`--math`), not by these flags.
"""

from __future__ import annotations

from typing import Final

from dlc_backend_c.sections import PUSH

MACROS: Final = (
    "defined(__FAST_MATH__)",
    "defined(__ASSOCIATIVE_MATH__)",
    "defined(__RECIPROCAL_MATH__)",
    "defined(__NO_SIGNED_ZEROS__)",
    "(defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)",
)
"""What compilers define under these flags; clang the first and the last alone."""
_OFF: Final = (
    "no-fast-math",
    "no-unsafe-math-optimizations",
    "no-associative-math",
    "no-reciprocal-math",
    "no-finite-math-only",
    "signed-zeros",
)
DEFINITION: Final = f"""\
#if defined(__GNUC__) && !defined(__clang__)
{PUSH}#endif
#if defined(__clang__)
#if __clang_major__ >= 13 && ({MACROS[0]} || {MACROS[-1]})
#pragma float_control(precise, on)
#pragma clang fp contract(fast)
#elif __clang_major__ >= 13
#pragma clang fp reassociate(off)
#elif {MACROS[0]} || {MACROS[-1]}
#error "this program needs NaN, and sums in order: compile it without -ffast-math, or by clang 13 or newer"
#endif
#elif defined(__GNUC__) && ({" || ".join(MACROS)})
#pragma GCC optimize ({", ".join(f'"{flag}"' for flag in _OFF)})
#elif {MACROS[0]} || {MACROS[-1]}
#error "this program needs NaN, and sums in order: compile it without -ffast-math"
#endif
"""
