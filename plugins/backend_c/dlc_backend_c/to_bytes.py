"""Floats as bytes, rounded and clipped: how quantised values are stored.

    u8(min(max(round(x) + zero, low), high))   →   (uint8_t)dlc_to_byte(x, zero, low, high)

Clipping before rounding to the same bounds gives the same numbers, and what is small rounds without a function of the
math library. Cortex-M4 and its like have an instruction that rounds half to even; processors without floating point
round the bits of a number. All of them give the same bytes.
"""

from __future__ import annotations

from typing import Final

from dlc.base.types import DType, f32, i8, u8
from dlc.kernel.expr import Apply, Const, Expr

MOST: Final = 1 << 20
"""Bounds and zero points that are rounded like this are smaller: f32 has halves of them."""

DEFINITION: Final = """\
/* x half to even, plus zero, at least low and at most high; 0 of NaN. */
DLC_INLINE int32_t dlc_to_byte(float x, int32_t zero, int32_t low, int32_t high)
{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32) && defined(__ARM_FP) && !defined(__aarch64__)
    union {
        float f;
        int32_t i;
    } whole;
    int32_t r;
    if ((zero != 0 || low > 0 || high < 0) && x != x)
        return 0;
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(whole.f) : "t"(x));
    r = whole.i;
    if (zero != 0)
        __asm__("qadd %0, %1, %2" : "=r"(r) : "r"(r), "r"(zero));
    return r < low ? low : r > high ? high : r;
#elif (defined(__arm__) && !defined(__ARM_FP)) || (defined(__riscv) && !defined(__riscv_flen))
    union {
        float f;
        uint32_t u;
    } v;
    uint32_t size;
    int32_t r = 0;
    v.f = x;
    size = v.u & 0x7fffffffu;
    if (size > 0x7f800000u)
        return 0;
    if (size >= 0x4b000000u) {
        r = 1 << 23;
    } else if (size > 0x3f000000u) {
        const uint32_t shift = 150u - (size >> 23), whole = (size & 0x7fffffu) | 0x800000u;
        r = (int32_t)((whole + (1u << (shift - 1u)) - 1u + (whole >> shift & 1u)) >> shift);
    }
    r = (v.u >> 31 ? -r : r) + zero;
    return r < low ? low : r > high ? high : r;
#else
    const float least = (float)(low - zero), most = (float)(high - zero);
    if (x != x)
        return 0;
    x = x < least ? least : x > most ? most : x;
#if defined(__SSE4_1__) || defined(__aarch64__) || defined(__FAST_MATH__) || !defined(__FLT_EVAL_METHOD__) \\
    || __FLT_EVAL_METHOD__
    return (int32_t)rintf(x) + zero;
#else
    return (int32_t)((x + 12582912.0f) - 12582912.0f) + zero;
#endif
#endif
}
"""


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
    return x, int(zero), int(low), int(high)
