"""Arithmetic in which mistakes do not cancel: floating-point numbers as residues of a prime.

    add, sub, mul, neg, div         those of the field of P elements: exact, in any order (`modular`)
    min, max, comparisons           by a total order of the residues -P/2 … P/2 (`order`)
    exp, erf, floor, …              a random function each: equal arguments give equal values, others unrelated ones
    powers to a multiple of 1/4     products of the number, its root and the root of that
    literals                        the residue of the fraction that they are; infinities, which absorb; and one
                                    residue, which compares with none, is what isnan asks for
    conversions between floats      nothing: rounding is not looked at
    integers and Booleans           as they are

Two sums of products that are not equal as formulas over their operands differ as residues with a probability of about
1 - degree/P for random operands (Schwartz and Zippel); P is 2^26 - 5, so that products of residues are exact in double
precision. A NaN of numpy is no number here: it stands for a value that nobody knows, and is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from dlc.base.types import Array, DType
from dlc.kernel.evaluate import Arithmetic
from dlc.kernel.loops.check.modular import (
    NAN,
    SMALL,
    P,
    add,
    add_at,
    div,
    hashed,
    mul,
    mul_at,
    power,
    products,
    random_residues,
    reduced,
    residue,
    sub,
    sums,
)
from dlc.kernel.loops.check.order import COMPARING, Order
from dlc.kernel.scalar import SCALARS


class Unknowable(Exception):
    """Something that must be known, as a condition or a subscript, depends on a value that nobody knows."""


_QUARTERS: Final[Mapping[float, int]] = {residue(n / 4): n for n in range(-8, 9)}
"""The residues of exponents whose powers are products."""
_FIELD: Final[Mapping[str, Callable[..., Array]]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
}


class Field(Arithmetic):
    """Numbers as the module says."""

    def __init__(self, order: Order | None = None) -> None:
        """With an order for what the kernel compares."""
        super().__init__()
        self._order = order or Order()
        self._guesses = False
        self._literals: dict[tuple[type, bool | int | float, DType], Array] = {}

    @contextmanager
    def guessing(self) -> Generator[None]:
        """Comparisons of values that nobody knows are allowed, and false."""
        before, self._guesses = self._guesses, True
        try:
            yield
        finally:
            self._guesses = before

    def numpy(self, dtype: DType) -> Any:
        return np.dtype(np.float64) if dtype.is_float else dtype.numpy

    def literal(self, value: bool | int | float, dtype: DType) -> Array:
        key = type(value), value, dtype
        found = self._literals.get(key)
        if found is None:
            found = np.asarray(residue(float(value))) if dtype.is_float else super().literal(value, dtype)
            self._literals[key] = found
        return found

    def applied(self, fn: str, dtype: DType | None, *values: Array) -> Array:
        scalar = SCALARS[fn]
        # Literals alone have no type.
        is_float = values[0].dtype.kind == "f" if dtype is None else dtype.is_float
        if scalar.to is not None:
            return self._converted(fn, scalar.to, values[0], is_float, scalar.rule == "bits")
        if not is_float:
            return super().applied(fn, dtype, *values)
        if fn in _FIELD:
            return _FIELD[fn](*values)
        if fn in ("min", "max"):
            return self._order.extreme(fn, *values)
        if fn == "pow" and values[1].size == 1 and (quarters := _QUARTERS.get(float(values[1].flat[0]))) is not None:
            return power(values[0], quarters)
        if (
            (fn in COMPARING or fn in ("isnan", "isinf"))
            and not self._guesses
            and any(np.isnan(v).any() for v in values)
        ):
            raise Unknowable
        if fn in COMPARING:
            a, b = values
            ordered = (a != NAN) & (b != NAN)
            holds = self._order.compared(fn, a, b)
            return np.asarray(holds | ~ordered if fn == "ne" else holds & ordered)
        if fn == "isnan":
            return np.asarray(values[0] == NAN)
        if fn == "isinf":
            return np.isinf(values[0])
        return random_residues(fn, values)

    def _converted(self, fn: str, to: DType, x: Array, is_float: bool, bits: bool) -> Array:
        if not is_float and not bits:
            if not to.is_float:
                return super().applied(fn, None, x)
            x = np.asarray(x)
            return reduced((x % np.asarray(P, x.dtype) if x.dtype.itemsize == 8 else x).astype(np.float64))
        if is_float and to.is_float:
            return x
        if is_float and np.isnan(x).any():
            raise Unknowable
        known = x if is_float else np.asarray(x).astype(np.float64)
        if to.is_float:
            return random_residues(fn, (known,))
        if to.name == "bool" and not bits:
            return np.asarray(x != 0)
        whole = (hashed(fn if bits else "whole", (known,)) >> np.uint64(1)).astype(np.int64)
        if not bits:
            whole = np.where(np.abs(x) <= SMALL, x, whole & 0x7FFF).astype(np.int64)
        return np.asarray(whole != 0 if to.name == "bool" else SCALARS[to.name].value(whole))

    def kept(self, value: Array, dtype: DType) -> Array:
        return value.astype(self.numpy(dtype), copy=False)

    def stored(self, value: Array, to: DType) -> Array:
        return value if to.is_float else super().stored(value, to)

    def loaded(self, value: Array, dtype: DType) -> Array:
        return value.astype(np.float64) if dtype.is_float else super().loaded(value, dtype)

    def combined_at(self, fn: str, dtype: DType, out: Array, index: tuple[Array, ...], value: Array) -> None:
        if not dtype.is_float:
            super().combined_at(fn, dtype, out, index, value)
        elif fn in ("add", "mul"):
            (add_at if fn == "add" else mul_at)(out, index, value)
        else:
            self._order.extreme_at(fn, out, index, value)

    def combined_runs(self, fn: str, dtype: DType, values: Array, starts: Array) -> Array:
        if not dtype.is_float:
            return super().combined_runs(fn, dtype, values, starts)
        if fn in ("add", "mul"):
            return (sums if fn == "add" else products)(values, starts)
        return self._order.extreme_runs(fn, values, starts)
