"""What other languages have and this one writes otherwise: reported where such a word or sign stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FUNCTIONS: Final[dict[str, str]] = {
    "sigmoid": "1 / (1 + exp(-x))",
    "relu": "max(x, 0)",
    "silu": "x / (1 + exp(-x))",
    "softplus": "log1p(exp(x))",
    "gelu": "x * (0.5 + 0.5 * erf(x / sqrt(2)))",
    "rsqrt": "1 / sqrt(x)",
    "square": "x * x",
    "log2": "log(x) / log(2)",
    "exp2": "pow(2, x)",
    "fabs": "abs(x)",
    "clip": "min(max(x, low), high)",
    "clamp": "min(max(x, low), high)",
    "where": "select(condition, a, b)",
}
"""Function → the same by functions that there are; `x` stands for its argument."""
REDUCTIONS: Final[dict[str, str]] = {
    "argmax": "min[k](select(x[k] == max[l](x[l]), k, n)), where n is the size of x",
    "argmin": "min[k](select(x[k] == min[l](x[l]), k, n)), where n is the size of x",
    "mean": "sum[k](x[k]) / n, where n is the size of x",
    "any": "max[k](select(condition, 1, 0))",
    "all": "min[k](select(condition, 1, 0))",
}
"""Reduction over an index k → the same by reductions that there are."""
SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "?": ("there is no operator '?:'", "select(condition, a, b)"),
    "&": ("there are no operators '&&' and '&'", "and between conditions, bitand(a, b) of whole numbers"),
    "|": ("there are no operators '||' and '|'", "or between conditions, bitor(a, b) of whole numbers"),
    "!": ("there is no operator '!'", "not in front of a condition"),
    "^": ("there is no operator '^'", "pow(a, b) for a power, bitxor(a, b) of whole numbers"),
}
"""Character → what there is none of, and what is written instead."""
STATEMENTS: Final[Mapping[str, tuple[str, str]]] = {
    "for": ("loops", "every index runs over its range by itself: A<8>[i] = B<8>[i]; and sum[k](…) adds up over k"),
    "while": ("loops", "every index runs over its range by itself: A<8>[i] = B<8>[i]; and sum[k](…) adds up over k"),
    "if": ("statements under a condition", "write select(condition, a, b) on the right side"),
    "return": ("return statements", "a kernel gives what its head names: kernel f(…) -> (A: float[8]) { … }"),
}
"""First word → what there is none of, and what is written instead."""
POWER: Final = ("there is no operator '**'", "write pow(a, b)")
