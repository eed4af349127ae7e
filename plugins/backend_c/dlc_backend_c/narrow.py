"""Elements of narrow types in C: from their bits to the value that is computed with, and back with one rounding.

A type `t` has `dlc_t_value`, `dlc_t_bits`, and `dlc_round_t`, which gives the value that another one becomes.
All is arithmetic on bits, so that no compiler or processor has to know the type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from dlc.base.float_format import FloatFormat
from dlc.base.types import DType

_ROUND = """\
DLC_INLINE @value dlc_round_@type(@value x) { return dlc_@type_value(dlc_@type_bits(x)); }
"""

# Without branches, so that compilers turn loops of them into vectors. What is too small for a whole fraction is rounded
# by an addition that has the type's smallest value as its last place.
_FLOAT = """\
DLC_INLINE @storage dlc_@type_bits(float x)
{
    union { float f; uint32_t u; } in, tiny;
    uint32_t size, sign, h;
    in.f = x;
    size = in.u & 0x7fffffffu;
    sign = in.u >> @to_sign & @signu;
    tiny.u = size;
    tiny.f += @magicf;
    h = ((size + @below_halfu + (size >> @to_fraction & 1u)) >> @to_fraction) - @rebiasu;
    h = size < @smallest_normalu ? tiny.u - @magic_bitsu : h;
    h = h > @largestu ? @overflowu : h;
    return (@storage)(size > 0x7f800000u ? @nan : @signed);
}
DLC_INLINE float dlc_@type_value(@storage h)
{
    union { uint32_t u; float f; } out, tiny;
    uint32_t size = h & @below_signu;
    tiny.f = (float)(int32_t)size * @unitf;
    out.u = (size << @to_fraction) + @rebased_exponentu;
    out.u = size < @oneu ? tiny.u : out.u;
@special    out.u |= (uint32_t)(h & @signu) << @to_sign;
    return out.f;
}
"""

# Doubles in one step, as numpy rounds to the types that it has.
_FROM_DOUBLE = """\
DLC_INLINE float dlc_round_@type_f64(double x)
{
    union { double f; uint64_t u; } in;
    uint64_t fraction, rest, half;
    unsigned h;
    int exponent, shift = @dropped;
    float value;
    in.f = x;
    exponent = (int)(in.u >> 52 & 0x7ffu) - 1023;
    fraction = in.u & 0xfffffffffffffu;
    if (exponent == 1024 || exponent > @largest_exponent || exponent < @vanishing)
        return dlc_round_@type((float)x);
    if (exponent < @smallest_exponent) {
        shift = @denormal - exponent;
        fraction |= (uint64_t)1 << 52;
        h = (unsigned)(fraction >> shift);
    } else {
        h = (unsigned)(exponent + @bias) << @fraction | (unsigned)(fraction >> @dropped);
    }
    rest = fraction & (((uint64_t)1 << shift) - 1);
    half = (uint64_t)1 << (shift - 1);
    if (rest > half || (rest == half && (h & 1u)))
        h++;
    value = dlc_@type_value((@storage)h);
    return in.u >> 63 ? -value : value;
}
"""

# The upper half of an f32.
_UPPER = """\
DLC_INLINE @storage dlc_@type_bits(float x)
{
    union { float f; uint32_t u; } in;
    uint32_t nan, h;
    in.f = x;
    nan = (in.u >> @to_fraction & @signu) | @quietu;
    h = (in.u + @below_halfu + (in.u >> @to_fraction & 1u)) >> @to_fraction;
    return (@storage)((in.u & 0x7fffffffu) > 0x7f800000u ? nan : h);
}
DLC_INLINE float dlc_@type_value(@storage h)
{
    union { uint32_t u; float f; } out;
    out.u = (uint32_t)h << @to_fraction;
    return out.f;
}
"""

_SCALE = """\
DLC_INLINE @storage dlc_@type_bits(float x)
{
    int exponent = 0;
    float fraction;
    if (!(x > 0.0f) || isinf(x))
        return @nan;
    fraction = frexpf(x, &exponent);
    exponent += @bias - 1;
    exponent += exponent > 0 ? fraction >= 0.75f : fraction > 0.5f;
    return (@storage)(exponent > @nan ? @nan : exponent < 0 ? 0 : exponent);
}
DLC_INLINE float dlc_@type_value(@storage h) { return h == @nan ? NAN : ldexpf(1.0f, (int)h - @bias); }
"""

# The bits of an element where a byte holds several, the first in the lowest bits.
_PACKED = """\
DLC_INLINE uint8_t dlc_@type_at(const uint8_t *p, ptrdiff_t at)
{
    return (uint8_t)(p[at / @per_byte] >> at % @per_byte * @bits & @ones);
}
"""

_INTEGER = """\
DLC_INLINE @storage dlc_@type_bits(int32_t x) { return (@storage)((uint32_t)x & @masku); }
DLC_INLINE int32_t dlc_@type_value(@storage h) { return (int32_t)((h & @masku) ^ @signu) - @sign; }
"""


def definitions(t: DType) -> str:
    """The functions of a narrow type."""
    sign = 1 << (t.bits - 1) if t.kind == "int" else 0
    names = {"storage": f"uint{t.itemsize * 8}_t", "type": t.name, "bits": t.bits, "per_byte": t.per_byte}
    names |= {"ones": (1 << t.bits) - 1}
    packed = filled(_PACKED, names) if t.per_byte > 1 else ""
    if t.format is None:
        values = {**names, "value": "int32_t", "mask": (1 << t.bits) - 1, "sign": sign}
        return packed + filled(_INTEGER + _ROUND, values)
    names["value"] = "float"
    if t.format.specials == "scale":
        return filled(_SCALE + _ROUND, {**names, "bias": t.format.bias, "nan": t.format.largest_bits + 1})
    text = (_UPPER if is_upper(t.format) else _FLOAT) + _ROUND + ("" if t.library else _FROM_DOUBLE)
    return packed + filled(text, {**names, **numbers(t.format)})


def is_upper(of: FloatFormat) -> bool:
    """Whether a format's bits are the upper bits of an f32."""
    return (of.exponent, of.bias, of.specials) == (8, 127, "ieee")


def numbers(of: FloatFormat) -> Mapping[str, object]:
    """What the text of a format's functions is filled with."""
    sign, smallest, last = 1 << (of.exponent + of.fraction), 1 - of.bias, 23 - of.fraction
    above = of.largest_bits + 1
    quiet = above | 1 << (of.fraction - 1)
    # What NaN and what is too large become, the bits without a sign with theirs, and which bits are read as NaN.
    nan, overflow, signed, special, read = {
        "ieee": (f"sign | {quiet}u", above, "sign | h", "size >= @aboveu", "out | 0x7f800000u"),
        "fn": (f"sign | {above}u", above, "sign | h", "size == @aboveu", "0x7fc00000u"),
        "fnuz": (f"{sign}u", sign, "h ? sign | h : 0u", "h == @signu", "0x7fc00000u"),
        "finite": (f"sign ^ {sign}u", of.largest_bits, "sign | h", "", ""),
    }[of.specials]
    choice = f"    out.u = {special} ? {read.replace('out', 'out.u')} : out.u;\n" if special else ""
    vector = f"    out = dlc_choose_@U((@U)(@V_mask)({special}), {_spread(read)}, out);\n" if special else ""
    return {
        "sign": sign,
        "below_sign": sign - 1,
        "above": above,
        "one": 1 << of.fraction,
        "nan": nan,
        "quiet": quiet,
        "overflow": overflow,
        "signed": signed,
        "vector_signed": "(sign & (@U)((@V_mask)h != 0)) | h" if of.specials == "fnuz" else signed,
        "special": choice,
        "vector_special": vector,
        "largest": of.largest_bits,
        "smallest_normal": (smallest + 127) << 23,
        "magic": repr(of.smallest * 2.0**23),
        "magic_bits": int(np.float32(of.smallest * 2.0**23).view(np.uint32)),
        "unit": repr(of.smallest),
        "rebias": (127 - of.bias) << of.fraction,
        "rebased_exponent": (127 - of.bias) << 23,
        "to_sign": 31 - of.exponent - of.fraction,
        "to_fraction": last,
        "below_half": (1 << (last - 1)) - 1,
        "dropped": 52 - of.fraction,
        "largest_exponent": (of.largest_bits >> of.fraction) - of.bias,
        "vanishing": smallest - of.fraction - 1,
        "smallest_exponent": smallest,
        "denormal": 52 - of.fraction + smallest,
        "bias": of.bias,
        "fraction": of.fraction,
    }


def _spread(value: str) -> str:
    """A value in every lane; what is made of lanes as it is."""
    return value if value.startswith("out") else f"(@U){{0}} + {value}"


def filled(text: str, values: Mapping[str, object]) -> str:
    """A text with values in the places of `@name`; lines of which nothing is left go."""
    names = "|".join(sorted(values, key=len, reverse=True))
    for _ in range(3):  # what is filled in has names of its own
        text = re.sub(f"@({names})", lambda m: str(values[m[1]]), text)
    return text.replace("\n\n", "\n")  # where nothing was filled in: an empty line would end a definition
