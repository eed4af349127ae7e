"""Which subscripts some gcc takes for masks: those whose data is a condition.

    r[i] = table[x[i] < y[i] ? 1 : 0]      →      elements table[-1], table[-2], … of a table of two

gcc 11 to 13 vectorise such a loop as a gather whose offsets are the comparison itself. As a vector, a comparison that
holds is -1, and it has the width of what was compared: where that is the width of the elements, the gather reads
out of bounds, from eight iterations on, already at -O2. Sums of a number and a condition, multiples, and whatever the
compiler finds to be 0 or 1, as min(max(t, 0), 1), are alike (known_faults/condition_index.c).

So the value of such a subscript passes an empty assembler statement, which no compiler looks through: its loop stays
scalar. Only subscripts have it that are decided by conditions, or that have few values, and only compilers that may be
mistaken see it. Choices between two loads, and subscripts with an axis of the same loop, are compiled right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dlc.base.types import DType, bool_
from dlc.kernel.expr import Apply, Axis, Const, Expr
from dlc.kernel.loops.program import Let, Local, Set, Stmt, walk_stmts
from dlc.kernel.scalar import SCALARS
from dlc.kernel.simplify import is_index
from dlc_backend_c.masks import UNROLLED

HELPER: Final = "dlc_condition_index"
DEFINITION: Final = f"""
/* gcc before 14 may take an index that is 0 or 1 for a mask of -1, and read out of bounds: it does not look in here. */
DLC_INLINE ptrdiff_t {HELPER}(ptrdiff_t i)
{{
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14
    __asm__("" : "+r"(i));
#endif
    return i;
}}
"""
FEW: Final = 4
"""Values of a subscript up to which a compiler may find that it is a condition."""
Interval = tuple[float, float]
_T = TypeVar("_T")
_ANY: Final[Interval] = (-math.inf, math.inf)
_TRUTH: Final[Interval] = (0, 1)


def assigned(body: tuple[Stmt, ...]) -> dict[str, list[Expr]]:
    """Variable → all values that statements give it."""
    found: dict[str, list[Expr]] = {}
    for s in walk_stmts(body):
        if isinstance(s, Let | Set):
            found.setdefault(s.local.name, []).append(s.value)
    return found


@dataclass
class Conditions:
    """Tells which values are conditions, or have few values, by their expressions and those of variables."""

    values: Mapping[str, Sequence[Expr]]
    dtype: Callable[[Expr], DType | None]
    _open: set[str] = field(default_factory=set[str])
    """Variables that are looked at: what they add to themselves is no other value."""

    def is_mask(self, subscript: Expr) -> bool:
        """Whether a compiler may find that a flat subscript is a condition, but for numbers that a loop does not
        change."""
        data = tuple(_data_of(subscript))
        low, high = (sum(ends) for ends in zip(*(self.interval(e) for e in data), strict=True))
        return high - low < FEW or all(self.is_decided(e) for e in data)

    def is_decided(self, e: Expr) -> bool:
        """Whether conditions and constants alone make a value."""
        match e:
            case Const():
                return True
            case Axis(_, extent):
                return extent <= UNROLLED
            case _ if self._is_truth(e):
                return True
            case Local(name, _, _):
                return self._of(name, True, lambda values: all(self.is_decided(v) for v in values))
            case Apply(fn, args):
                return all(self.is_decided(a) for a in (args[1:] if fn == "select" else args))
            case _:
                return False

    def interval(self, e: Expr) -> Interval:
        """Numbers between which a value is; infinite where nothing is known."""
        match e:
            case Const(v):
                return (float(v), float(v)) if v == v else _ANY
            case _ if self._is_truth(e):
                return _TRUTH
            case Local(name, _, _):
                return self._of(name, (math.inf, -math.inf), self._hull)
            case Apply("select", (_, *branches)):
                return self._hull(branches)
            case Apply(fn, args):
                return _interval(fn, [self.interval(a) for a in args])
            case _:
                return _ANY

    def _hull(self, values: Sequence[Expr]) -> Interval:
        lows, highs = zip(*map(self.interval, values), strict=True)
        return min(lows), max(highs)

    def _is_truth(self, e: Expr) -> bool:
        return not isinstance(e, Axis) and self.dtype(e) is bool_

    def _of(self, name: str, inside: _T, found: Callable[[Sequence[Expr]], _T]) -> _T:
        """What holds for the values of a variable; `inside` of themselves."""
        if name in self._open:
            return inside
        if name not in self.values:
            return found([_UNKNOWN])
        self._open.add(name)
        try:
            return found(self.values[name])
        finally:
            self._open.discard(name)


_UNKNOWN: Final = Axis("unknown", 1 << 62)


def _data_of(e: Expr) -> Sequence[Expr]:
    """The terms of a subscript that are more than axes."""
    if is_index(e):
        return ()
    match e:
        case Apply("add" | "sub", (a, b)):
            return (*_data_of(a), *_data_of(b))
        case _:
            return (e,)


def _interval(fn: str, args: Sequence[Interval]) -> Interval:
    """What a function makes of intervals."""
    (low, high), *rest = args
    if rest:
        ((a, b),) = rest[:1]
        return _of_two(fn, low, high, a, b) if len(rest) == 1 else _ANY
    if SCALARS[fn].rule == "cast":
        return math.floor(low) if math.isfinite(low) else low, math.ceil(high) if math.isfinite(high) else high
    found = {"neg": (-high, -low), "sign": (-1, 1)}
    return (low - 1, high + 1) if fn in ("floor", "ceil", "round", "trunc") else found.get(fn, _ANY)


def _of_two(fn: str, low: float, high: float, a: float, b: float) -> Interval:
    constant = a == b and math.isfinite(a)
    finite = all(map(math.isfinite, (low, high, a, b)))
    products = [x * y for x in (low, high) for y in (a, b)] if finite else [-math.inf, math.inf]
    found = {
        "min": (min(low, a), min(high, b)),
        "max": (max(low, a), max(high, b)),
        "add": (low + a, high + b),
        "sub": (low - b, high - a),
        "mul": (min(products), max(products)),
    }
    if constant and a > 0:
        found |= {"mod": (0, a - 1), "bitand": (0, a)}
        found |= {"floordiv": (low // a, high // a)} if finite else {}
    return found.get(fn, _ANY)
