"""Branch-free single-precision exp, tanh and erf: for scalars, vectorised by compilers in any loop, and for vectors.

Method: Cody-Waite reduction and polynomials in the manner of S. Moshier's Cephes library (expf, erff); the
outer part of erf is 1 - exp(q(x)) with q fitted by least squares on Chebyshev nodes. Bounds that the tests hold:
exp 1.0e-7 relative (results below 2^-126 are flushed gradually, as IEEE), tanh 2.0e-7 relative, erf 2.0e-7 relative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlc_backend_c.pieces import BODIES, LANES


@dataclass(frozen=True)
class Polynomial:
    """A sum of powers, evaluated from the highest one on by Horner's rule."""

    out: str
    """Variable of the value."""
    x: str
    """Variable of the argument."""
    coefficients: tuple[str, ...]
    """C literals, that of the highest power first."""

    def scalar(self) -> str:
        """Statements for one value."""
        first, *rest = self.coefficients
        return "\n".join([f"    {self.out} = {first};", *self._steps(rest)])

    def vector(self) -> str:
        """Statements for lanes: a vector has no constant to start from, so the first step has two coefficients."""
        first, second, *rest = self.coefficients
        return "\n".join([f"    {self.out} = {self.x} * {first} + {second};", *self._steps(rest)])

    def _steps(self, rest: Sequence[str]) -> list[str]:
        return [f"    {self.out} = {self.out} * {self.x} + {c};" for c in rest]


POLYNOMIALS: Final[Mapping[str, Polynomial]] = {
    "EXP": Polynomial(
        "p",
        "r",
        ("1.38144661e-3f", "8.36878084e-3f", "4.16683927e-2f", "1.66665196e-1f", "4.9999994e-1f"),
    ),
    "ERF_NEAR": Polynomial(
        "p",
        "z",
        ("7.853861353153693e-5f", "-8.010193625184903e-4f", "5.188327685732524e-3f", "-2.685381193529856e-2f",
         "1.128358514861418e-1f", "-3.761262582423300e-1f", "1.128379165726710e+0f"),
    ),
    "ERF_FAR": Polynomial(
        "q",
        "t",
        ("-1.964500007e-05f", "4.165671708e-04f", "-4.079282749e-03f", "2.486521937e-02f", "-1.078685448e-01f",
         "-6.337370872e-01f", "-1.129313946e+00f", "1.312583772e-04f"),
    ),
}  # fmt: skip
"""By the name that stands for them, behind an @, in the texts below."""

_SCALARS: Final = """\
/* 2^n for whole n in [-126, 127], by its bits. */
DLC_INLINE float dlc_exp2_whole(float n)
{
    union { int32_t i; float f; } out;
    out.i = ((int32_t)n + 127) * (1 << 23);
    return out.f;
}
/* needs association, rounding, nan */
DLC_INLINE float dlc_exp_f32(float x)
{
    float c = x > 89.0f ? 89.0f : x, n, m, r, p;
    c = c < -104.0f ? -104.0f : c;
    c = x != x ? 0.0f : c;
    /* Adding and taking away 1.5 * 2^23 rounds to a whole number. */
    n = (c * 1.44269504f + 12582912.0f) - 12582912.0f;
    r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
@EXP
    p = p * (r * r) + r + 1.0f;
    /* In two steps, because 2^n alone may leave the range that p * 2^n is still in. */
    m = (n * 0.5f + 12582912.0f) - 12582912.0f;
    p = p * dlc_exp2_whole(m) * dlc_exp2_whole(n - m);
    return x != x ? x : p;
}
/* (e^2x - 1) / (e^2x + 1) for the size of x, where e^2x is 2^n * (p + 1); 2^n by its bits, the last ones of n + 127. */
/* needs association, rounding, nan, signed_zeros */
DLC_INLINE float dlc_tanh_f32(float x)
{
    float a = fabsf(x), c = 2.0f * (a > 9.1f ? 9.1f : a), n, r, p;
    union { float f; uint32_t i; } s;
    s.f = c * 1.44269504f + 12583039.0f;
    n = s.f - 12583039.0f;
    s.i <<= 23;
    r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
@EXP
    p = p * (r * r) + r;
    p = p * s.f + (s.f - 1.0f);
    return x != x ? x : copysignf(p / (p + 2.0f), x);
}
/* needs nan, signed_zeros */
DLC_INLINE float dlc_erf_f32(float x)
{
    float a = fabsf(x), t = a > 4.0f ? 4.0f : a, z = x * x, p, q, big;
@ERF_NEAR
    p = p * x;
@ERF_FAR
    big = copysignf(1.0f - dlc_exp_f32(q), x);
    return a < 1.0f || x != x ? p : big;
}
"""

_VECTORS: Final = """\
DLC_INLINE @V dlc_pick_@V(@V_mask m, @V a, @V b) { return (@V)((m & (@V_mask)a) | (~m & (@V_mask)b)); }
DLC_INLINE @V dlc_abs_@V(@V x) { return (@V)((@V_mask)x & 0x7fffffff); }
/* The size of a with the sign of x. */
/* needs signed_zeros */
DLC_INLINE @V dlc_signed_@V(@V a, @V x) { return (@V)((@V_mask)dlc_abs_@V(a) | ((@V_mask)x & ~0x7fffffff)); }
/* What is left of c without n times log 2; exp of it. */
/* needs association */
DLC_INLINE @V dlc_exp_rest_@V(@V c, @V n) { return (c - n * 0.693359375f) - n * -2.12194440e-4f; }
DLC_INLINE @V dlc_exp_part_@V(@V r)
{
    @V p;
@EXP
    p = p * r + 1.0f;
    return p * r + 1.0f;
}
/* For x in [-87, 88] only. */
/* needs association, rounding */
DLC_INLINE @V dlc_exp_near_@V(@V x)
{
    @V n = (x * 1.44269504f + 12582912.0f) - 12582912.0f, p = dlc_exp_part_@V(dlc_exp_rest_@V(x, n));
#if defined(__AVX512VL__)
    __asm__("vscalefps %2, %1, %0" : "=v"(p) : "v"(p), "v"(n));
    return p;
#else
    return p * @2^n;
#endif
}
/* needs association, rounding, nan */
DLC_INLINE @V dlc_exp_@V(@V x)
{
@PIECES EXP
#if defined(__AVX512VL__) && defined(__AVX512DQ__)
    @V n = (x * 1.44269504f + 12582912.0f) - 12582912.0f, r = dlc_exp_rest_@V(x, n), p;
    /* Beyond all results, n decides, and r may be anything: its size is made one that it has, also that of NaN. */
    __asm__("vrangeps $2, %2, %1, %0" : "=v"(r) : "v"(r), "v"(dlc_splat_@V(0.36f)));
    p = dlc_exp_part_@V(r);
    __asm__("vscalefps %2, %1, %0" : "=v"(p) : "v"(p), "v"(n));
    (void)dlc_minc_@V, (void)dlc_maxc_@V; /* of other processors */
    return p;
#else
    @V c = dlc_maxc_@V(dlc_minc_@V(x, dlc_splat_@V(89.0f)), dlc_splat_@V(-104.0f));
    @V n = (c * 1.44269504f + 12582912.0f) - 12582912.0f, m, p;
    /* NaN has no whole number; it stays in p. */
    n = (@V)((@V_mask)n & (@V_mask)(c == c));
    m = (n * 0.5f + 12582912.0f) - 12582912.0f;
    p = dlc_exp_part_@V(dlc_exp_rest_@V(c, n));
    n -= m;
    return p * @2^m * @2^n;
#endif
@END
}
/* (e^2x - 1) / (e^2x + 1) for the size of x, where e^2x is 2^n * (p + 1); 2^n by its bits, the last ones of n + 127. */
/* needs association, rounding, nan, signed_zeros */
DLC_INLINE @V dlc_tanh_@V(@V x)
{
@PIECES TANH
    @V c = 2.0f * dlc_minc_@V(dlc_abs_@V(x), dlc_splat_@V(9.1f));
    @V t = c * 1.44269504f + 12583039.0f, n = t - 12583039.0f, s = (@V)((@V_mask)t << 23);
    @V r = (c - n * 0.693359375f) - n * -2.12194440e-4f, p;
@EXP
    p = p * (r * r) + r;
    p = p * s + (s - 1.0f);
    return dlc_signed_@V(p / (p + 2.0f), x);
@END
}
/* needs nan, signed_zeros */
DLC_INLINE @V dlc_erf_@V(@V x)
{
@PIECES ERF
    const @V four = dlc_splat_@V(4.0f), one = dlc_splat_@V(1.0f);
    @V a = dlc_abs_@V(x), t = dlc_pick_@V((@V_mask)(a > four), four, a), z = x * x, p, q;
@ERF_NEAR
    p = p * x;
@ERF_FAR
    q = dlc_signed_@V(1.0f - dlc_exp_near_@V(q), x);
    return dlc_pick_@V((@V_mask)(a < one) | (@V_mask)(x != x), p, q);
@END
}
"""

_MARK: Final = re.compile(r"@PIECES (\w+)\n(.*?)@END\n", re.DOTALL)
"""What one function does without pieces, behind their name."""
_POWER: Final = re.compile(r"@2\^([a-z])")
"""A power of two whose exponent is a whole number in [-126, 127], by its bits."""


def scalar_functions() -> str:
    """exp, tanh and erf of a float."""
    return _filled(_SCALARS, {name: p.scalar() for name, p in POLYNOMIALS.items()})


def vector_functions(lanes: int) -> str:
    """The same for vectors of so many lanes: @V is their type, @V_mask that of comparisons."""
    text = _filled(_VECTORS, {name: p.vector() for name, p in POLYNOMIALS.items()})
    text = _MARK.sub(_by_pieces if lanes == LANES else r"\2", text)
    return _POWER.sub(r"(@V)((__builtin_convertvector(\1, @V_mask) + 127) * (1 << 23))", text)


def _by_pieces(found: re.Match[str]) -> str:
    """The two ways of one function."""
    return f"""\
#if defined(__AVX512F__) && defined(__AVX512DQ__)
{BODIES[found[1]]}    return p;
#else
{found[2]}#endif
"""


def _filled(text: str, statements: Mapping[str, str]) -> str:
    for name, lines in statements.items():
        text = text.replace(f"@{name}\n", f"{lines}\n")
    return text
