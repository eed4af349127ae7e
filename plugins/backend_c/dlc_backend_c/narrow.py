"""Elements of narrow types in C: from their bits to the value that is computed with, and back with one rounding.

A type `t` has `dlc_t_value`, `dlc_t_bits`, and `dlc_round_t`, which gives the value that another one becomes.
All is arithmetic on bits, so that no compiler or processor has to know the type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlc.base.types import DType, FloatFormat

_ROUND = """\
DLC_INLINE @value dlc_round_@type(@value x) { return dlc_@type_value(dlc_@type_bits(x)); }
"""

_FLOAT = """\
DLC_INLINE @storage dlc_@type_bits(double x)
{
    union { double f; uint64_t u; } in;
    uint64_t fraction, rest, half;
    unsigned sign, h;
    int exponent, shift = @dropped;
    in.f = x;
    sign = (unsigned)(in.u >> @above) & @signu;
    exponent = (int)(in.u >> 52 & 0x7ffu) - 1023;
    fraction = in.u & 0xfffffffffffffu;
    if (exponent == 1024 && fraction)
        return (@storage)(@nan);
    if (exponent > @largest)
        return (@storage)(@overflow);
    if (exponent < @vanishing)
        return (@storage)@zero;
    if (exponent < @smallest) {
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
@rounded    return (@storage)(sign | h);
}
DLC_INLINE float dlc_@type_value(@storage h)
{
    union { uint32_t u; float f; } out;
    unsigned exponent = h >> @fraction & @ones_of_exponentu, fraction = h & @ones_of_fractionu;
    float small;
@special    if (exponent == 0) {
        small = (float)fraction * @unitf;
        return h & @signu ? -small : small;
    }
    out.u = (uint32_t)(h & @signu) << @to_sign | @exponent_of_f32 << 23 | (uint32_t)fraction << @to_fraction;
    return out.f;
}
"""

# The upper half of an f32.
_UPPER = """\
DLC_INLINE @storage dlc_@type_bits(float x)
{
    union { float f; uint32_t u; } in;
    in.f = x;
    if ((in.u & 0x7fffffffu) > 0x7f800000u)
        return (@storage)((in.u >> @to_fraction & @signu) | @quietu);
    return (@storage)((in.u + @below_halfu + (in.u >> @to_fraction & 1u)) >> @to_fraction);
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

_INTEGER = """\
DLC_INLINE @storage dlc_@type_bits(int32_t x) { return (@storage)((uint32_t)x & @masku); }
DLC_INLINE int32_t dlc_@type_value(@storage h) { return (int32_t)((h & @masku) ^ @signu) - @sign; }
"""


def definitions(t: DType) -> str:
    """The functions of a narrow type."""
    names = {"storage": f"uint{t.itemsize * 8}_t", "type": t.name}
    if t.format is None:
        sign = 1 << (t.bits - 1) if t.kind == "int" else 0
        return _filled(_INTEGER + _ROUND, {**names, "value": "int32_t", "mask": (1 << t.bits) - 1, "sign": sign})
    names["value"] = "float"
    if t.format.specials == "scale":
        return _filled(_SCALE + _ROUND, {**names, "bias": t.format.bias, "nan": t.format.largest_bits + 1})
    upper = (t.format.exponent, t.format.bias, t.format.specials) == (8, 127, "ieee")
    text = (_UPPER if upper else _FLOAT) + _ROUND
    return _filled(text, {**names, **_numbers(t.format)})


def _numbers(of: FloatFormat) -> Mapping[str, object]:
    """What the text of a format's functions is filled with."""
    sign, ones, smallest = 1 << (of.exponent + of.fraction), (1 << of.exponent) - 1, 1 - of.bias
    above = of.largest_bits + 1
    quiet = above | 1 << (of.fraction - 1)
    minus_zero = "    if (h == 0)\n        return 0;\n"
    check = "    if (h > @largest_bits)\n        return (@storage)(@overflow);\n"
    # What NaN, what is too large, and 0 become; what is still to be done after rounding; and bits that are read as NaN.
    nan, overflow, zero, rounded, special = {
        "ieee": (f"sign | {quiet}u", f"sign | {above}u", "sign", "", ""),
        "fn": (f"sign | {above}u", f"sign | {above}u", "sign", check, _read_nan(f"(h & {sign - 1}u) == {above}u")),
        "fnuz": (
            f"{sign}u",
            f"{sign}u",
            "0",
            check + minus_zero,
            _read_nan(f"h == {sign}u"),
        ),
        "finite": (f"sign ^ {sign}u", f"sign | {of.largest_bits}u", "sign", check, ""),
    }[of.specials]
    stays = of.specials == "ieee"
    exponent = f"(exponent + {127 - of.bias}u)"
    return {
        "dropped": 52 - of.fraction,
        "above": 63 - of.exponent - of.fraction,
        "sign": sign,
        "nan": nan,
        "overflow": overflow,
        "zero": zero,
        "rounded": rounded.replace("@largest_bits", f"{of.largest_bits}u").replace("@overflow", overflow),
        "special": special,
        "largest": (of.largest_bits >> of.fraction) - of.bias,
        "vanishing": smallest - of.fraction - 1,
        "smallest": smallest,
        "denormal": 52 - of.fraction + smallest,
        "bias": of.bias,
        "fraction": of.fraction,
        "ones_of_exponent": ones,
        "ones_of_fraction": (1 << of.fraction) - 1,
        "unit": repr(of.smallest),
        "to_sign": 31 - of.exponent - of.fraction,
        "to_fraction": 23 - of.fraction,
        "exponent_of_f32": f"(exponent == {ones} ? 255u : exponent + {127 - of.bias}u)" if stays else exponent,
        "below_half": (1 << (22 - of.fraction)) - 1,
        "quiet": quiet,
    }


def _read_nan(condition: str) -> str:
    return f"    if ({condition})\n        return h & @signu ? -NAN : NAN;\n"


def _filled(text: str, values: Mapping[str, object]) -> str:
    names = "|".join(sorted(values, key=len, reverse=True))
    for _ in range(2):  # what is filled in has names of its own
        text = re.sub(f"@({names})", lambda m: str(values[m[1]]), text)
    return text
