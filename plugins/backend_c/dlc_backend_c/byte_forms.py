"""Which expressions are floats that become bytes, rounded and clipped, as the functions of `to_bytes` compute them.

u8(min(max(round(x) + zero, low), high))   →   (uint8_t)dlc_to_byte(x, zero, low, high)
f32(i32(u8(…)) + c)                        →   dlc_whole(x, low - zero, high - zero) + (zero + c), in vectors
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dlc.base.types import DType, f32, i8, u8
from dlc.kernel.expr import Apply, Const, Expr

MOST: Final = 1 << 20
"""Bounds and zero points that are rounded like this are smaller: f32 has halves of them."""


def to_byte(e: Apply, source: DType | None) -> tuple[Expr, int, int, int] | None:
    """x, zero, low and high of a conversion to bytes that is rounded and clipped like this; None of any other."""
    if source is not f32 or e.fn not in (i8.name, u8.name):
        return None
    match e.args:
        case (Apply("min", (Apply("max", (sum_, Const(low))), Const(high))),):
            pass
        case _:
            return None
    match sum_:
        case Apply("round", (x,)):
            zero: bool | int | float = 0
        case Apply("add", (Apply("round", (x,)), Const(zero))):
            pass
        case _:
            return None
    if any(abs(v) > MOST or v != int(v) for v in (zero, low, high)) or low > high:
        return None
    match x:
        case Apply("max", (inner, Const(least))) if least <= low - zero:  # a ReLU where zero is the least byte
            x = inner
        case _:
            pass
    return x, int(zero), int(low), int(high)


def whole(e: Apply, source: Callable[[Expr], DType | None]) -> tuple[Expr, int, int, int] | None:
    """x, low, high and what is added, of a float that is a byte of `to_byte`; None of others, or if NaN is not low."""
    if e.fn != f32.name:
        return None
    match e.args:
        case (Apply("add", (Apply("i32", (Apply() as byte,)), Const(more))),):
            pass
        case (Apply("i32", (Apply() as byte,)),):
            more: bool | int | float = 0
        case _:
            return None
    if len(byte.args) != 1 or abs(more) > MOST or (found := to_byte(byte, source(byte.args[0]))) is None:
        return None
    x, zero, low, high = found
    return None if low else (x, low - zero, high - zero, zero + int(more))
