"""Vectors of bytes, i32 and f32 in one expression: what follows a sum of products of bytes.

    r[c] = u8(min(max(round(f32(t[c] + b[c])·s[c]), 0), 255))   →   Store(r, …, lanes of the same)

A vector has as many lanes whatever its type: bytes are widened to i32 when they are loaded, and narrowed when they are
stored. Conversions to bytes have a vector form where their argument is known to be in range.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.base.types import DType, f32, i8, i32, u8
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.loops.program import Local, dtype_of
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.lanes import neighbours

BYTES = (i8, u8)
_INTEGERS = frozenset(("add", "sub", "mul"))
"""Functions of vectors of i32."""


def byte_lanes(e: Expr, mapping: Mapping[Expr, Expr], lane: Axis, dtypes: Mapping[str, DType]) -> Expr | None:
    """The flat expression `e` after `mapping` for all values of `lane` at once, as `vectorise` does for one type.

    Returns:
        An expression without `lane`; a scalar when `e` does not depend on it; None when there is no vector form.
    """
    return _Former(mapping, lane, dtypes).form(e)


def stored_form(
    e: Expr, to: DType, mapping: Mapping[Expr, Expr], lane: Axis, dtypes: Mapping[str, DType]
) -> Expr | None:
    """The same of what is stored as `to`; a store of bytes wraps whatever i32 it is given, as a conversion does."""
    former = _Former(mapping, lane, dtypes)
    match e:
        case Apply(fn, (x,)) if to in BYTES and fn == to.name and former.dtype(x) is i32:
            inner = former.form(x)
            return None if inner is None else Apply(fn, (inner,))
        case _:
            return former.form(e)


class _Former:
    def __init__(self, mapping: Mapping[Expr, Expr], lane: Axis, dtypes: Mapping[str, DType]) -> None:
        self._mapping, self._lane, self._dtypes = mapping, lane, dtypes
        self._types: dict[Expr, DType | None] = {}
        self._forms: dict[Expr, Expr | None] = {}

    def dtype(self, e: Expr) -> DType | None:
        """The type of an expression; None for literals."""
        return dtype_of(e, self._dtypes, self._types)

    def form(self, e: Expr) -> Expr | None:
        """The vector form."""
        if e not in self._forms:
            self._forms[e] = self._form(e)
        return self._forms[e]

    def _form(self, e: Expr) -> Expr | None:
        match e:
            case Const():
                return e
            case Local():
                return self._mapping.get(e, e)
            case Load(name, (at,)) if self._dtypes[name] in (f32, i32, *BYTES):
                return neighbours(name, at, self._mapping, self._lane)
            case Apply(fn, (x,)) if SCALARS[fn].rule == "cast":
                inner = self.form(x) if self._converts(x, SCALARS[fn].to) else None
                return None if inner is None else Apply(fn, (inner,))
            case Apply(fn, args) if self._has_vectors(fn, self.dtype(e)):
                parts = [self.form(a) for a in args]
                return None if any(p is None for p in parts) else Apply(fn, tuple(p for p in parts if p is not None))
            case _:
                return None

    def _converts(self, x: Expr, to: DType | None) -> bool:
        source = self.dtype(x)
        if to is not None and to in BYTES:
            return source is f32 and in_range(x, to)
        return (to is f32 and source in (f32, i32, *BYTES)) or (to is i32 and source in (i32, *BYTES))

    @staticmethod
    def _has_vectors(fn: str, dtype: DType | None) -> bool:
        return fn in _INTEGERS if dtype is i32 else dtype is f32 and SCALARS[fn].lanes in ("float", "f32")


def in_range(e: Expr, to: DType) -> bool:
    """Whether a float is NaN, or in the range of an integer type."""
    match e:
        case Apply("min", (Apply("max", (_, Const(low))), Const(high))):
            least, most = to.limits
            return low >= least and high <= most
        case _:
            return False
