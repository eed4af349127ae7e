"""The C text that comes before functions: includes, types, and a helper for what C has no operator for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from dlc.base.types import DTYPES, DType, f32, f64, i32
from dlc.kernel.loops.program import Local
from dlc_backend_c import (
    condition_indices,
    in_order,
    instructions,
    kept_loads,
    masks,
    math_flags,
    narrow,
    narrow_vectors,
    past_caches,
    rolled,
    to_bytes,
)
from dlc_backend_c.helpers import MATH, needed, paragraphs
from dlc_backend_c.lanes_to_c import vector
from dlc_backend_c.needs import declared, without_needs
from dlc_backend_c.spelling import VALUE, spell
from dlc_backend_c.target import CTarget
from dlc_backend_c.vector_math import scalar_functions, vector_functions

# Before `_TILES`: a compiler notes the options that hold with every declaration, of which math.h has a thousand.
_INCLUDES = f"""\
{MATH}

#include <stddef.h>
#include <stdint.h>

"""
_HEAD = """\
#define DLC_INLINE static inline

DLC_INLINE ptrdiff_t dlc_min_index(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
DLC_INLINE ptrdiff_t dlc_max_index(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
/* Division that rounds down, by a positive number. */
DLC_INLINE ptrdiff_t dlc_floordiv_index(ptrdiff_t a, ptrdiff_t b) { return a / b - (a % b < 0); }
DLC_INLINE ptrdiff_t dlc_mod_index(ptrdiff_t a, ptrdiff_t b) { return a % b + (a % b < 0 ? b : 0); }
"""

# Whoever shares the iterations of loops is defined with the functions of the interface: see threads.py.
_THREADS = """\
DLC_INLINE size_t dlc_iterations(ptrdiff_t start, ptrdiff_t stop, ptrdiff_t step)
{
    return stop > start ? (size_t)((stop - start - 1) / step) + 1 : 0;
}
/* Runs body(context, first, last, share) for ranges of 0..count, perhaps at the same time. */
DLC_LOCAL void dlc_parallel(void (*body)(void *, size_t, size_t, size_t), void *context, size_t count);
"""

# Register tiles are complete: what these passes add to them are copies of values that then have no register left.
_TILES = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize ("no-predictive-commoning", "no-tree-slp-vectorize", "no-tree-coalesce-vars")
#endif
"""

# C's conversion of an unrepresentable value is undefined; these give the smallest integer, as x86 does, then wrap. Both
# types hold the limits exactly, and no float lies between -2147483648 and the first that is too small.
_FROM_FLOAT = """\
/* needs nan */
DLC_INLINE int32_t dlc_i32_of_@N(@T x)
{
    return x @LOW && x < 2147483648.0@S ? (int32_t)x : (-2147483647 - 1);
}
/* needs nan */
DLC_INLINE int64_t dlc_i64_of_@N(@T x)
{
    return x >= -9223372036854775808.0@S && x < 9223372036854775808.0@S ? (int64_t)x : (-9223372036854775807 - 1);
}
/* needs nan */
DLC_INLINE uint64_t dlc_u64_of_@N(@T x)
{
    if (x >= 9223372036854775808.0@S && x < 18446744073709551616.0@S)
        return (uint64_t)(x - 9223372036854775808.0@S) + ((uint64_t)1 << 63);
    return (uint64_t)dlc_i64_of_@N(x);
}
DLC_INLINE int8_t dlc_i8_of_@N(@T x) { return (int8_t)dlc_i32_of_@N(x); }
DLC_INLINE int16_t dlc_i16_of_@N(@T x) { return (int16_t)dlc_i32_of_@N(x); }
DLC_INLINE uint8_t dlc_u8_of_@N(@T x) { return (uint8_t)dlc_i32_of_@N(x); }
DLC_INLINE uint16_t dlc_u16_of_@N(@T x) { return (uint16_t)dlc_i32_of_@N(x); }
DLC_INLINE uint32_t dlc_u32_of_@N(@T x) { return (uint32_t)dlc_i64_of_@N(x); }
"""

_BOUNDED = """
/* A float that is NaN or well within the range as an integer. */
/* needs nan */
DLC_INLINE int32_t dlc_bounded(float x) { return x == x ? (int32_t)x : (-2147483647 - 1); }
"""
_FLOAT = """\
DLC_INLINE @I dlc_bits_of_@N(@T x) { union { @T f; @I u; } v; v.f = x; return v.u; }
DLC_INLINE @T dlc_@N_of_bits(@I x) { union { @I u; @T f; } v; v.u = x; return v.f; }
/* NaN if either is; the second form is for a second argument that is a number. */
/* needs nan */
DLC_INLINE @T dlc_min_@N(@T a, @T b) { @T m = a < b ? a : b; return a != a ? a : m; }
/* needs nan */
DLC_INLINE @T dlc_max_@N(@T a, @T b) { @T m = a > b ? a : b; return a != a ? a : m; }
/* needs nan */
DLC_INLINE @T dlc_minc_@N(@T a, @T b) { return b < a ? b : a; }
/* needs nan */
DLC_INLINE @T dlc_maxc_@N(@T a, @T b) { return b > a ? b : a; }
/* needs nan */
DLC_INLINE @T dlc_sign_@N(@T x) { return x != x ? x : (@T)((x > 0) - (x < 0)); }
/* needs nan, signed_zeros */
DLC_INLINE @T dlc_mod_@N(@T a, @T b)
{
    @T r = fmod@S(a, b);
    return r == 0 ? copysign@S(0, b) : (b < 0) != (r < 0) ? r + b : r;
}
/* needs division */
DLC_INLINE @T dlc_floordiv_@N(@T a, @T b) { return floor@S(a / b); }
"""

# @U is wide enough that promotion to int cannot overflow.
_INTEGER = """\
DLC_INLINE @T dlc_add_@N(@T a, @T b) { return (@T)((@U)a + (@U)b); }
DLC_INLINE @T dlc_sub_@N(@T a, @T b) { return (@T)((@U)a - (@U)b); }
DLC_INLINE @T dlc_mul_@N(@T a, @T b) { return (@T)((@U)a * (@U)b); }
DLC_INLINE @T dlc_neg_@N(@T a) { return (@T)((@U)0 - (@U)a); }
DLC_INLINE @T dlc_shl_@N(@T a, @T b) { return (@U)b < @Wu ? (@T)((@U)a << b) : (@T)0; }
DLC_INLINE @T dlc_min_@N(@T a, @T b) { return a < b ? a : b; }
DLC_INLINE @T dlc_max_@N(@T a, @T b) { return a > b ? a : b; }
DLC_INLINE @T dlc_pow_@N(@T a, @T b)
{
    @U r = 1, p = (@U)a;
@NEGATIVE_POWER
    for (; b > 0; b = (@T)(b / 2), p *= p)
        if (b & 1)
            r *= p;
    return (@T)r;
}
"""
_SIGNED = """\
DLC_INLINE @T dlc_abs_@N(@T a) { return a < 0 ? dlc_neg_@N(a) : a; }
DLC_INLINE @T dlc_sign_@N(@T a) { return (@T)((a > 0) - (a < 0)); }
/* Shifts are for all numbers of bits; the sign moves in from the left, also where C leaves that to the compiler. */
DLC_INLINE @T dlc_shr_@N(@T a, @T b)
{
    if ((@U)b >= @Wu)
        return a < 0 ? (@T)-1 : (@T)0;
    return a < 0 ? (@T)~(~a >> b) : (@T)(a >> b);
}
/* Division by zero gives 0, and by -1 wraps: neither may trap. */
DLC_INLINE @T dlc_truncdiv_@N(@T a, @T b) { return b == 0 ? (@T)0 : b == -1 ? dlc_neg_@N(a) : (@T)(a / b); }
DLC_INLINE @T dlc_fmod_@N(@T a, @T b) { return b == 0 || b == -1 ? (@T)0 : (@T)(a % b); }
DLC_INLINE @T dlc_floordiv_@N(@T a, @T b)
{
    @T q = dlc_truncdiv_@N(a, b), r = dlc_fmod_@N(a, b);
    return r != 0 && (r < 0) != (b < 0) ? (@T)(q - 1) : q;
}
DLC_INLINE @T dlc_mod_@N(@T a, @T b)
{
    @T r = dlc_fmod_@N(a, b);
    return r != 0 && (r < 0) != (b < 0) ? (@T)(r + b) : r;
}
"""
_UNSIGNED = """\
DLC_INLINE @T dlc_abs_@N(@T a) { return a; }
DLC_INLINE @T dlc_sign_@N(@T a) { return (@T)(a > 0); }
DLC_INLINE @T dlc_shr_@N(@T a, @T b) { return b < @Wu ? (@T)(a >> b) : (@T)0; }
DLC_INLINE @T dlc_truncdiv_@N(@T a, @T b) { return b == 0 ? (@T)0 : (@T)(a / b); }
DLC_INLINE @T dlc_fmod_@N(@T a, @T b) { return b == 0 ? (@T)0 : (@T)(a % b); }
DLC_INLINE @T dlc_floordiv_@N(@T a, @T b) { return dlc_truncdiv_@N(a, b); }
DLC_INLINE @T dlc_mod_@N(@T a, @T b) { return dlc_fmod_@N(a, b); }
"""

_LIBM = """\
DLC_INLINE float dlc_exp_f32(float x) { return expf(x); }
DLC_INLINE float dlc_tanh_f32(float x) { return tanhf(x); }
DLC_INLINE float dlc_erf_f32(float x) { return erff(x); }
"""

_VECTOR = """\
typedef @T @V __attribute__((vector_size(@B)));
typedef @T @V_any __attribute__((vector_size(@B), aligned(@A), may_alias));
typedef @I @V_mask __attribute__((vector_size(@B)));
DLC_INLINE @V dlc_splat_@V(@T x)
{
    @V v = {@X};
    return v;
}
/* Lanes of two vectors, in an order of constants. */
#if defined(__clang__)
#define dlc_shuffle_@V(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define dlc_shuffle_@V(a, b, ...) __builtin_shuffle(a, b, (@V_mask){__VA_ARGS__})
#endif
/* Every second element, up to the last one that is wanted. */
DLC_INLINE @V dlc_load_second_@V(const void *p)
{
    const @V a = *(const @V_any *)p, b = *(const @V_any *)((const @T *)p + @N - 1);
    return dlc_shuffle_@V(a, b, @E);
}
"""


_PICK = """\
/* Lanes of two vectors, or of four, that data count. */
typedef int32_t @V_places __attribute__((vector_size(@B), aligned(4), may_alias));
DLC_INLINE @V_mask dlc_places_@V(const int32_t *p, int32_t ahead) { return *(const @V_places *)p + ahead; }
DLC_INLINE @V dlc_picked_@V(@V a, @V b, @V_mask at)
{
#if defined(__AVX512F__) && @N == 16
    @V x = (@V)at;
    __asm__("vpermi2ps %2, %1, %0" : "+v"(x) : "v"(a), "v"(b));
    return x;
#else
    const @V both[2] = {a, b};
    @V x = a;
    for (int k = 0; k < @N; ++k)
        x[k] = both[at[k] / @N % 2][at[k] % @N];
    return x;
#endif
}
DLC_INLINE @V dlc_picked4_@V(@V a, @V b, @V c, @V d, @V_mask at)
{
    const @V_mask behind = (@V_mask)(at >= 2 * @N);
    return (@V)((~behind & (@V_mask)dlc_picked_@V(a, b, at)) | (behind & (@V_mask)dlc_picked_@V(c, d, at)));
}
"""

# x86 gives the second operand where one is NaN: in both orders the results are equal, or one of them is NaN.
_EXTREME = """\
/* needs nan */
DLC_INLINE @V dlc_@F_@V(@V a, @V b)
{
#if defined(@WITH)
    @V x, y;
    __asm__("v@F@P %2, %1, %0" : "=v"(x) : "v"(a), "v"(b));
    __asm__("v@F@P %2, %1, %0" : "=v"(y) : "v"(b), "v"(a));
    return (@V)((@V_mask)x | (@V_mask)y);
#else
    @V_mask m = (@V_mask)(a @O b) | (@V_mask)(a != a);
    return (@V)((m & (@V_mask)a) | (~m & (@V_mask)b));
#endif
}
/* needs nan */
DLC_INLINE @V dlc_@Fc_@V(@V a, @V b)
{
#if defined(@WITH)
    @V x;
    __asm__("v@F@P %2, %1, %0" : "=v"(x) : "v"(b), "vm"(a));
    return x;
#else
    @V_mask m = (@V_mask)(b @O a);
    return (@V)((m & (@V_mask)b) | (~m & (@V_mask)a));
#endif
}
"""


_FOLD = """\
DLC_INLINE @T dlc_fold_@F_@V(@V v)
{
@BEFORE    return @X;
}
"""


def prelude(target: CTarget, text: str) -> str:
    """What the functions in a text rely on, and nothing that they do not use."""
    return needed(whole_prelude(target), text)


@lru_cache(maxsize=8)
def whole_prelude(target: CTarget) -> str:
    """Everything that functions for this target may rely on; no program has all of it."""
    text = declared_prelude(target)
    needs = {need for found in declared(text).values() for need in found}
    return paragraphs(_INCLUDES + math_flags.definition(needs) + without_needs(text))


def declared_prelude(target: CTarget) -> str:
    """The helpers with what each needs of floating point."""
    return "\n".join(_sections(target))


def _sections(target: CTarget) -> Iterator[str]:
    if target.vector_bytes:
        yield _TILES
    yield _HEAD + condition_indices.DEFINITION + in_order.DEFINITION + masks.DEFINITION + rolled.DEFINITION
    if target.threads > 1:
        yield _THREADS
    for t in DTYPES.values():
        if t.narrow:
            yield narrow.definitions(t)
    for t, suffix, low in ((f32, "f", ">= -2147483648.0f"), (f64, "", "> -2147483649.0")):
        text = (
            (_FROM_FLOAT.replace("@LOW", low) + _FLOAT)
            .replace("@T", VALUE[t])
            .replace("@N", t.name)
            .replace("@S", suffix)
        )
        yield text.replace("@I", f"uint{8 * t.itemsize}_t")
    yield _BOUNDED + to_bytes.DEFINITION
    for t in DTYPES.values():
        if t.is_integer and not t.narrow:
            yield _integer(t)
    yield scalar_functions() if target.vector_bytes else _LIBM
    if target.vector_bytes:
        yield past_caches.ENDING
        yield from _vectors(target.vector_bytes)
        size = target.vector_bytes
        while size >= 16:
            yield narrow_vectors.vector_types(size // f32.itemsize)
            for t in DTYPES.values():
                if t.narrow:
                    yield narrow_vectors.vector_definitions(t, size // f32.itemsize)
            yield instructions.vector_of_sums(size // i32.itemsize, target.instructions)
            size //= 2
        yield instructions.WORD
    else:
        yield instructions.words_of_sums(target.instructions)


def _vectors(largest: int) -> Iterator[str]:
    """Vectors of floats up to this many bytes, and what combines their lanes."""
    sizes = [largest >> k for k in range(4) if largest >> k >= 16]
    for t in (f32, f64):
        for size in sizes:
            yield _vector(t, size)
        for size in reversed(sizes):
            for fn in ("add", "mul", "min", "max"):
                yield _fold(t, fn, size)


def _fold(t: DType, fn: str, size: int) -> str:
    """The lanes of a vector combined by halves: a vector of two floats is the first half of one of four."""
    lanes = size // t.itemsize
    half = lanes // 2
    before = ""
    if size > 16:
        v = Local("v", t, half)
        texts = (f"(*(const {t}x{half}_any *)&v)", f"(*((const {t}x{half}_any *)&v + 1))")
        value = f"dlc_fold_{fn}_{t}x{half}({vector(fn, t, half, texts, (v, v))})"
    elif half == 1:
        value = spell(fn, t, ("v[0]", "v[1]"))
    else:
        v = Local("v", t, lanes)
        before = f"    @V h = {{v[2], v[3], v[2], v[3]}}, w = {vector(fn, t, lanes, ('v', 'h'), (v, v))};\n"
        value = spell(fn, t, ("w[0]", "w[1]"))
    text = _FOLD.replace("@BEFORE", before).replace("@X", value)
    return text.replace("@T", VALUE[t]).replace("@F", fn).replace("@V", f"{t}x{lanes}")


def _integer(t: DType) -> str:
    unsigned = "uint64_t" if t.itemsize == 8 else "uint32_t"
    negative = "    if (b < 0)\n        return a == 1 ? (@T)1 : a == -1 ? (b & 1 ? (@T)-1 : (@T)1) : (@T)0;"
    text = _INTEGER.replace("@NEGATIVE_POWER\n", negative + "\n" if t.kind == "int" else "")
    text += _SIGNED if t.kind == "int" else _UNSIGNED
    text = text.replace("@T", VALUE[t]).replace("@N", t.name).replace("@U", unsigned)
    return text.replace("@W", str(8 * t.itemsize))


def _vector(t: DType, size: int) -> str:
    lanes = size // t.itemsize
    mask = "int32_t" if t is f32 else "int64_t"
    extremes = "".join(
        _EXTREME.replace("@F", fn).replace("@O", operator) for fn, operator in (("min", "<"), ("max", ">"))
    )
    text = (
        (_VECTOR + kept_loads.VECTOR + extremes + past_caches.VECTOR + (_PICK + vector_functions(lanes)) * (t is f32))
        .replace("@WITH", "__AVX512F__" if size == 64 else "__AVX__")
        .replace("@P", "ps" if t is f32 else "pd")
        .replace("@V", f"{t}x{lanes}")
        .replace("@T", VALUE[t])
        .replace("@B", str(size))
    )
    second = ", ".join(str(2 * k + (2 * k >= lanes)) for k in range(lanes))
    text = text.replace("@E", second).replace("@N", str(lanes))
    return text.replace("@A", str(t.itemsize)).replace("@I", mask).replace("@X", ", ".join(["x"] * lanes))
