"""Vectors of narrow floats in C: loads and stores that convert all lanes at once, and rounding.

A type `t` and vectors `v` of f32 have `dlc_load_t_v`, `dlc_store_t_v` and `dlc_round_t_v`, made of `dlc_value_t_v` and
`dlc_bits_t_v`. They compute on bits what the scalar functions of `narrow` do, or are an instruction where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.base.types import DType
from dlc_backend_c.byte_order import BIG_ENDIAN
from dlc_backend_c.narrow import filled, is_upper, numbers

_LOAD = """\
DLC_INLINE @V dlc_load_@type_@V(const @storage *p) { return dlc_value_@type_@V(*(const @H_any *)p); }
"""

_STORE = """\
DLC_INLINE void dlc_store_@type_@V(@storage *p, @V x) { *(@H_any *)p = dlc_bits_@type_@V(x); }
DLC_INLINE @V dlc_round_@type_@V(@V x) { return dlc_value_@type_@V(dlc_bits_@type_@V(x)); }
"""

_CHOICE = """\
DLC_INLINE @U dlc_choose_@U(@U mask, @U a, @U b) { return (mask & a) | (~mask & b); }
"""

# Packed elements count from the lowest bits of the first byte on.
_LITTLE = f"""\
DLC_INLINE @U dlc_little_@U(const uint8_t *p)
{{
    const @U w = *(const @U_any *)p;
#if {BIG_ENDIAN}
    return w >> 24 | (w >> 8 & 0xff00u) | (w << 8 & 0xff0000u) | w << 24;
#else
    return w;
#endif
}}
"""

_VECTOR_FLOAT = """\
DLC_INLINE @H dlc_bits_@type_@V(@V x)
{
@INTO
    const @U in = (@U)x, size = in & 0x7fffffffu, sign = in >> @to_sign & @signu;
    const @V tiny = (@V)size + @magicf;
    @U h = ((size + @below_halfu + (size >> @to_fraction & 1u)) >> @to_fraction) - @rebiasu;
    h = dlc_choose_@U((@U)((@V_mask)size < @smallest_normal), (@U)tiny - @magic_bitsu, h);
    h = dlc_choose_@U((@U)((@V_mask)h > @largest), (@U){0} + @overflowu, h);
    h = dlc_choose_@U((@U)((@V_mask)size > 0x7f800000), (@U){0} + (@nan), @vector_signed);
    return __builtin_convertvector(h, @H);
@END
}
DLC_INLINE @V dlc_value_@type_@V(@H bits)
{
@OUT_OF
    const @U h = @widened, size = h & @below_signu;
    const @V tiny = __builtin_convertvector((@V_mask)size, @V) * @unitf;
    @U out = (size << @to_fraction) + @rebased_exponentu;
    out = dlc_choose_@U((@U)((@V_mask)size < @one), (@U)tiny, out);
@vector_special    return (@V)(out | (h & @signu) << @to_sign);
@END
}
"""

_VECTOR_UPPER = """\
DLC_INLINE @H dlc_bits_@type_@V(@V x)
{
    const @U in = (@U)x;
    @U nan = (@U)((@V_mask)(in & 0x7fffffffu) > 0x7f800000), h = in >> @to_fraction;
    h = (nan & ((h & @signu) | @quietu)) | (~nan & ((in + @below_halfu + (h & 1u)) >> @to_fraction));
    return __builtin_convertvector(h, @H);
}
DLC_INLINE @V dlc_value_@type_@V(@H bits) { return (@V)(@widened << @to_fraction); }
"""

_LANE_BY_LANE = """\
DLC_INLINE @H dlc_bits_@type_@V(@V x)
{
    @H bits = {0};
    int k;
    for (k = 0; k < @lanes; ++k)
        bits[k] = dlc_@type_bits(x[k]);
    return bits;
}
DLC_INLINE @V dlc_value_@type_@V(@H bits)
{
    @V x = {0};
    int k;
    for (k = 0; k < @lanes; ++k)
        x[k] = dlc_@type_value(bits[k]);
    return x;
}
"""

_VECTOR_INTEGER = """\
DLC_INLINE @V dlc_lanes_@type_@V(@U h)
{
    return __builtin_convertvector((@V_mask)(((h & @onesu) ^ @signu) - @signu), @V);
}
DLC_INLINE @V dlc_value_@type_@V(@H bits) { return dlc_lanes_@type_@V(@widened); }
"""

# Words of several elements in all of their lanes, each shifted to its own.
_UNPACK = """\
DLC_INLINE @V dlc_unpack_@type_@V(const uint8_t *p, ptrdiff_t at)
{
    @U h = {0};
    int k;
    if (at % @per_byte == 0) {
        const uint8_t *const b = p + at / @per_byte;
@words
        const @U words = {@repeated}, shifts = {@shifts};
        h = words >> shifts & @onesu;
    } else {
        for (k = 0; k < @lanes; ++k)
            h[k] = dlc_@type_at(p, at + k);
    }
    return @unpacked;
}
"""

# An element of each of several words, at the same place in all of them.
_EVERY = """\
DLC_INLINE @V dlc_every_@type_@V(const uint8_t *p, ptrdiff_t at, int place)
{
    const @U h = dlc_little_@U(p + at / @per_byte) >> (@bits * place) & @onesu;
    return @unpacked;
}
"""
# Elements of words at this place and each as many bits further on as a byte has: bytes of the words that they make.
_BYTES = """\
DLC_INLINE @U dlc_bytes_@type_@U(const uint8_t *p, ptrdiff_t at, int place)
{
    return *(const @U_any *)(p + at / @per_byte) >> (@bits * place) & @ones_of_bytesu;
}
"""
# The same, times two to the power of the bits below it: no shift is needed.
_RAISED = """\
DLC_INLINE @V dlc_raised_@type_@V(const uint8_t *p, ptrdiff_t at, int place)
{
    const @U words = dlc_little_@U(p + at / @per_byte);
    return __builtin_convertvector((@V_mask)(words & (@onesu << (@bits * place))), @V);
}
"""

# Processors that have the conversion: what it gives differs from the text below in the payload of a NaN only.
_BY_INSTRUCTION: Mapping[str, Mapping[str, str]] = {
    "f16": {
        "INTO": """\
#ifdef __F16C__
    @H h;
    (void)dlc_choose_@U;
    __asm__("vcvtps2ph $0, %1, %0" : "=v"(h) : "v"(x));
    return h;
#else""",
        "OUT_OF": """\
#ifdef __F16C__
    @V x;
    (void)dlc_choose_@U;
    __asm__("vcvtph2ps %1, %0" : "=v"(x) : "v"(bits));
    return x;
#else""",
        "END": "#endif",
    }
}


def vector_types(lanes: int) -> str:
    """The types by which vectors of narrow elements are converted: bits as they are stored and as wide as f32."""
    stored = "".join(
        f"typedef uint{bits}_t u{bits}x{lanes} __attribute__((vector_size({lanes * bits // 8})));\n"
        f"typedef uint{bits}_t u{bits}x{lanes}_any "
        f"__attribute__((vector_size({lanes * bits // 8}), aligned({bits // 8}), may_alias));\n"
        for bits in (8, 16)
    )
    wide = (
        f"typedef uint32_t u32x{lanes} __attribute__((vector_size({lanes * 4})));\n"
        f"typedef uint32_t u32x{lanes}_any __attribute__((vector_size({lanes * 4}), aligned(1), may_alias));\n"
    )
    return stored + wide + (_CHOICE + _LITTLE).replace("@U", f"u32x{lanes}")


_HALFWAY = {1: "__builtin_convertvector(bits, u16x@lanes)"}


def vector_definitions(t: DType, lanes: int) -> str:
    """The functions of vectors of a narrow type: loads that convert, of floats also stores and rounding."""
    names: dict[str, object] = {
        "V": f"f32x{lanes}",
        "V_mask": f"f32x{lanes}_mask",
        "U": f"u32x{lanes}",
        "H": f"u{t.itemsize * 8}x{lanes}",
        "H_any": f"u{t.itemsize * 8}x{lanes}_any",
        "lanes": lanes,
        "storage": f"uint{t.itemsize * 8}_t",
        "type": t.name,
        # gcc converts vectors of bytes to words lane by lane, but twice to the double width at once.
        "widened": f"__builtin_convertvector({_HALFWAY.get(t.itemsize, 'bits')}, @U)",
        **dict.fromkeys(("INTO", "OUT_OF", "END"), ""),
        # clang has no registers for less than 16 bytes
        **(_BY_INSTRUCTION.get(t.name, {}) if lanes >= 8 else {}),
    }
    last = _LOAD + (_unpack(t, lanes) if t.per_byte > 1 else "")
    if t.format is None:
        sign = 1 << (t.bits - 1) if t.kind == "int" else 0
        return filled(_VECTOR_INTEGER + last, {**names, "ones": (1 << t.bits) - 1, "sign": sign})
    if t.format.specials == "scale":
        return filled(_LANE_BY_LANE + last + _STORE, names)
    text = _VECTOR_UPPER if is_upper(t.format) else _VECTOR_FLOAT
    return filled(text + last + _STORE, {**names, **numbers(t.format)})


def _unpack(t: DType, lanes: int) -> str:
    """The function that loads packed elements; those of a word at once where they begin with a byte."""
    each = min(lanes, 32 // t.bits)
    count = each * t.bits // 8
    words: list[str] = []
    for w in range(lanes // each):
        parts = (f"(uint32_t)b[{w * count + k}]{f' << {8 * k}' if k else ''}" for k in range(count))
        words.append(f"        const uint32_t w{w} = {' | '.join(parts)};")
    result = "dlc_value_@type_@V(__builtin_convertvector(h, @H))" if t.format else "dlc_lanes_@type_@V(h)"
    names: dict[str, object] = {
        "per_byte": t.per_byte,
        "ones": (1 << t.bits) - 1,
        "words": "\n".join(words),
        "repeated": ", ".join(f"w{k // each}" for k in range(lanes)),
        "shifts": ", ".join(str(k % each * t.bits) for k in range(lanes)),
        "unpacked": result,
        "bits": t.bits,
        "ones_of_bytes": ((1 << t.bits) - 1) * 0x01010101,
    }
    return filled(_UNPACK + _EVERY + (_RAISED + _BYTES if t.kind == "uint" else ""), names)
