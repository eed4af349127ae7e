"""Floats as bytes, rounded and clipped: how quantised values are stored.

Clipping before rounding to the same bounds gives the same numbers, and what is small rounds without a function of the
math library. Cortex-M4 and its like have an instruction that rounds half to even; processors without floating point
round the bits of a number. All of them give the same bytes.
"""

from __future__ import annotations

from typing import Final

DEFINITION: Final = """\
/* x half to even, plus zero, at least low and at most high; 0 of NaN. */
/* needs association, nan */
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
    const int number = low == 0 || x == x;
    x = x > least ? x : least; /* of NaN too */
    x = x < most ? x : most;
#if defined(__SSE4_1__) || defined(__aarch64__) || defined(__FAST_MATH__) || !defined(__FLT_EVAL_METHOD__) \\
    || __FLT_EVAL_METHOD__
    x = rintf(x);
#else
    x = (x + 12582912.0f) - 12582912.0f;
#endif
    return number ? (int32_t)x + zero : 0;
#endif
}
"""


VECTORS: Final = """
/* needs nan */
DLC_INLINE @V dlc_to_byte_@V(f32x@N x, int32_t zero, int32_t low, int32_t high)
{
    const f32x@N above = dlc_maxc_f32x@N(dlc_splat_f32x@N((float)(low - zero)), x); /* of NaN too */
    const f32x@N inside = dlc_minc_f32x@N(above, dlc_splat_f32x@N((float)(high - zero)));
    @V whole;
    (void)dlc_round_f32x@N; /* of other processors */
#if defined(__AVX512F__) && @N == 16
    __asm__("vcvtps2dq %1, %0" : "=v"(whole) : "v"(inside));
#elif defined(__AVX__) && @N < 16
    __asm__("vcvtps2dq %1, %0" : "=x"(whole) : "x"(inside));
#else
    whole = __builtin_convertvector(dlc_round_f32x@N(inside), @V);
#endif
    whole = dlc_add_@V(whole, dlc_splat_@V(zero));
    return low == 0 ? whole : whole & (@V)(x == x);
}
/* x half to even, at least low and at most high; low of NaN. */
/* needs nan */
DLC_INLINE f32x@N dlc_whole_f32x@N(f32x@N x, float low, float high)
{
    return dlc_round_f32x@N(dlc_minc_f32x@N(dlc_maxc_f32x@N(dlc_splat_f32x@N(low), x), dlc_splat_f32x@N(high)));
}
"""
"""The same of vectors: bytes have an i32 for each lane."""
