"""What helpers of generated C need of floating point beyond the C standard's text: declared before each of them.

    /* needs association, nan */
    DLC_INLINE float dlc_exp_f32(float x) …

The declaration is a line of the helper's text here, which C does not get. From the declarations follows what every
program begins with (`dlc_backend_c.math_flags`): flags of the user's that take away what a helper needs are taken back
for the program's functions, or are an error where a compiler cannot. A helper that declares nothing is right under any
of these flags. `tests/backend_c/test_needs.py` looks for needs that nobody declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True)
class Enforcement:
    """How a need is enforced.

    Attributes:
        taken: Conditions of the preprocessor under which it is taken away, as gcc defines them.
        flags: Options by which gcc gives it back.
        refused: Condition under which no option gives it back: an error.
    """

    taken: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    refused: str = ""


FAST: Final = "defined(__FAST_MATH__)"
"""What all compilers define where all needs are taken away at once."""
FINITE: Final = "(defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)"


class Need(Enum):
    """What a helper relies on."""

    ASSOCIATION = Enforcement(
        ("defined(__ASSOCIATIVE_MATH__)",), ("no-unsafe-math-optimizations", "no-associative-math")
    )
    """Sums in the order in which they are written: (x + 1.5 * 2^23) - 1.5 * 2^23 rounds to a whole number."""
    DIVISION = Enforcement(("defined(__RECIPROCAL_MATH__)",), ("no-reciprocal-math",))
    """Quotients that are rounded once."""
    NAN = Enforcement((FINITE,), ("no-finite-math-only",))
    """x != x of NaN alone, comparisons with it that do not hold, and infinities."""
    SIGNED_ZEROS = Enforcement(("defined(__NO_SIGNED_ZEROS__)",), ("signed-zeros",))
    """-0 that differs from 0."""
    ROUNDING = Enforcement(
        refused="defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)"
    )
    """Every result rounded to its own type, not kept in a wider register."""


_LINE: Final = re.compile(r"^/\* needs ([a-z_, ]+) \*/\n", re.MULTILINE)
_NAME: Final = re.compile(r"DLC_(?:INLINE|LOCAL) [\w ]*?(\w+)\(")


def without_needs(text: str) -> str:
    """The text as C gets it."""
    return _LINE.sub("", text)


def declared(text: str) -> Mapping[str, frozenset[Need]]:
    """Helper → what it declares, of those that declare something."""
    found: dict[str, frozenset[Need]] = {}
    for line in _LINE.finditer(text):
        name = _NAME.search(text, line.end())
        assert name is not None, line[0]
        found[name[1]] = frozenset(Need[word.strip().upper()] for word in line[1].split(","))
    return found
