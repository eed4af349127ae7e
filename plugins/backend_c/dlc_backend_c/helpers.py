"""Which helpers of a prelude a text uses.

A prelude consists of paragraphs. Those that begin with `#` belong to every program; each of the others defines helpers,
and is there for who uses one of them. So is math.h, which takes compilers longer to read than most kernels:

    #include <stdint.h>

    /* A comment belongs to what follows it. */
    DLC_INLINE float dlc_sign_f32(float x) { … }

What helpers use is found in their text, as what kernels use is in theirs: there is no table to fall behind.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

MATH = "#include <math.h>"
"""The paragraph that declares the functions of C's math library."""
_WORD = re.compile(r"\w+")
_OF_ANY_FLOAT = _WORD.findall("""
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax
    fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint
    nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc
""")
_MACROS = _WORD.findall("""
    HUGE_VAL HUGE_VALF INFINITY NAN fpclassify isfinite isgreater isgreaterequal isinf isless islessequal islessgreater
    isnan isnormal isunordered signbit
""")
MATH_NAMES = (*_OF_ANY_FLOAT, *(f"{name}f" for name in _OF_ANY_FLOAT), *_MACROS)
"""What math.h declares, by section 7.12 of C99, but for `long double`."""
_FUNCTION = re.compile(r"^DLC_(?:INLINE|LOCAL) [\w ]*?(\w+)\(", re.MULTILINE)
_TYPE = re.compile(r"^typedef [\w ]*?(\w+)(?: __attribute__\(\(.*\)\))?;", re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)


def paragraphs(text: str) -> str:
    """The text of a prelude with an empty line before each helper."""
    found: list[str] = []
    for line in text.splitlines():
        begins = line.startswith(("DLC_INLINE ", "DLC_LOCAL ", "typedef ", "/* "))
        if begins and found and found[-1] and not found[-1].startswith("/* "):
            found.append("")
        found.append(line)
    return "\n".join(found) + "\n"


def needed(prelude: str, text: str) -> str:
    """The prelude with those helpers only that a text uses, directly or by way of others; the order stays."""
    parts, home = _homes(prelude)
    used: set[str] = set()
    waiting = [text]
    while waiting:
        found = {home[word] for word in set(_WORD.findall(waiting.pop())) & home.keys()} - used
        used |= found
        waiting += found
    return "\n\n".join(part for part in parts if part in used or not _is_helper(part)) + "\n"


def names(prelude: str) -> tuple[str, ...]:
    """The functions and types that a prelude defines."""
    return (*_FUNCTION.findall(prelude), *_TYPE.findall(prelude))


def macros(prelude: str) -> tuple[str, ...]:
    """The macros that a prelude defines."""
    return tuple(dict.fromkeys(_MACRO.findall(prelude)))


def _is_helper(part: str) -> bool:
    return part == MATH or not part.startswith("#")


@lru_cache(maxsize=64)
def _homes(prelude: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """(The parts of a prelude, name → the part that defines it)."""
    parts = tuple(part.strip("\n") for part in re.split(r"\n{2,}", prelude) if part.strip())
    home = {name: part for part in parts if _is_helper(part) for name in (*names(part), *macros(part))}
    return parts, home | dict.fromkeys(MATH_NAMES, MATH)
