"""exp, tanh and erf by pieces, for processors that find one of sixteen numbers for each lane by an instruction.

    exp(x)  = 2^n · 2^(k/16) · p(r)      n + k/16 nearest to x/log 2, k < 16, and r what is left of x
    tanh(x) = pₖ(a - cₖ) · sign x        a = |x|, k by the exponent and two bits of a + 5/8
    erf(x)  = pₖ(a - k/4) · sign x       a = |x|, k/4 nearest to it

Pieces of tanh and erf are of degree 5, those of exp of degree 3. They are fitted by least squares that are weighted
towards the largest relative error: 1.6e-9 of exp, 4e-8 of tanh, 3e-8 of erf. Rounding makes it 1.1e-7, 1.3e-7 and
1.6e-7. The functions of `vector_math` take longer polynomials, and tanh and erf exp and divisions, instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_POWERS: Final = (
    "1.0f", "1.0442737f", "1.0905077f", "1.1387886f",
    "1.1892071f", "1.2418578f", "1.2968396f", "1.3542556f",
    "1.4142135f", "1.4768262f", "1.5422108f", "1.6104903f",
    "1.6817929f", "1.7562522f", "1.8340081f", "1.9152066f",
)  # fmt: skip
"""2^(k/16)."""
_TANH_FROM: Final = (
    "1.625f", "2.125f", "2.625f", "3.125f", "3.875f", "4.875f", "5.875f", "6.875f",
    "8.375f", "0.0f", "0.1875f", "0.3125f", "0.5f", "0.75f", "1.0f", "1.25f",
)  # fmt: skip
"""Where pieces of tanh are 0 from: their middles, and 0 for the first one, whose errors are relative to x."""
_TANH: Final = (
    (
        "0.0010888452f", "0.0044507855f", "0.0023601423f", "0.0009763051f",
        "0.00023710364f", "3.2531185e-5f", "4.410757e-6f", "5.970802e-7f",
        "3.4202795e-8f", "0.12984101f", "0.09711296f", "0.045934644f",
        "-0.02565432f", "-0.06337717f", "-0.046310205f", "-0.019378575f",
    ),
    (
        "-0.024827478f", "-0.015029456f", "-0.006484306f", "-0.0025235834f",
        "-0.0005988372f", "-8.160591e-5f", "-1.10544825e-5f", "-1.4962507e-6f",
        "-8.628553e-8f", "0.00051369617f", "0.11281692f", "0.15769374f",
        "0.16350119f", "0.09972653f", "0.028152779f", "-0.0122320745f",
    ),
    (
        "0.07517854f", "0.0339008f", "0.013415713f", "0.005068539f",
        "0.0011431196f", "0.000155156f", "2.1006363e-5f", "2.8430538e-6f",
        "1.3818688e-7f", "-0.33335948f", "-0.28871778f", "-0.2195545f",
        "-0.09422308f", "0.04180339f", "0.1036053f", "0.10831286f",
    ),
    (
        "-0.13301323f", "-0.05390215f", "-0.020553246f", "-0.0076617827f",
        "-0.0017173195f", "-0.00023275129f", "-3.1505646e-5f", "-4.263939e-6f",
        "-2.0669857e-7f", "4.4438374e-7f", "-0.17896679f", "-0.27497086f",
        "-0.36342415f", "-0.3789207f", "-0.3198526f", "-0.23787342f",
    ),
    (
        "0.1437342f", "0.05546335f", "0.020771509f", "0.007692093f",
        "0.0017215493f", "0.00023316035f", "3.155801e-5f", "4.2709707e-6f",
        "2.1320234e-7f", "1.0f", "0.96565163f", "0.9083668f",
        "0.7864478f", "0.5965858f", "0.41997433f", "0.28041485f",
    ),
    (
        "0.92534626f", "0.97187275f", "0.98955977f", "0.9961465f",
        "0.99913883f", "0.9998834f", "0.9999842f", "0.99999785f",
        "0.9999999f", "0.0f", "0.1853332f", "0.30270973f",
        "0.46211717f", "0.63514894f", "0.7615942f", "0.84828365f",
    ),
)  # fmt: skip
"""C literals of all pieces, those of the highest power first."""
_ERF: Final = (
    (
        "0.14133345f", "0.08112547f", "0.008333034f", "-0.052088015f",
        "-0.06905791f", "-0.04700424f", "-0.014938181f", "0.0065022544f",
        "0.013032393f", "0.010647664f", "0.0061273375f", "0.0027714486f",
        "0.0010256357f", "0.00031781633f", "8.34918e-5f", "1.6485428e-5f",
    ),
    (
        "-0.007320149f", "0.12609288f", "0.18212564f", "0.15066187f",
        "0.06885567f", "-0.0052910475f", "-0.0436197f", "-0.04741103f",
        "-0.033720303f", "-0.018549748f", "-0.009609282f", "-0.0029970193f",
        "-0.0017999103f", "7.085563e-5f", "0.00083082414f", "-0.0001918608f",
    ),
    (
        "-0.3755456f", "-0.30919757f", "-0.14648041f", "0.026774129f",
        "0.13837102f", "0.16753396f", "0.1387522f", "0.09015779f",
        "0.04822297f", "0.021724533f", "0.008350069f", "0.0027603f",
        "0.0007890537f", "0.00019578847f", "4.2288295e-5f", "7.985361e-6f",
    ),
    (
        "-1.4705661e-5f", "-0.264999f", "-0.4393884f", "-0.4822045f",
        "-0.41510123f", "-0.2956598f", "-0.17840604f", "-0.09236487f",
        "-0.0413452f", "-0.016079282f", "-0.00543094f", "-0.0016167575f",
        "-0.0004061092f", "-0.000100526435f", "-3.298824e-5f", "-5.245914e-7f",
    ),
    (
        "1.1283792f", "1.0600142f", "0.87878263f", "0.6429311f",
        "0.4151075f", "0.23652112f", "0.11893029f", "0.052774996f",
        "0.020666987f", "0.0071423193f", "0.002178284f", "0.0005862773f",
        "0.00013925305f", "2.9189026e-5f", "5.3994268e-6f", "1.0414321e-6f",
    ),
    (
        "0.0f", "0.2763264f", "0.5204999f", "0.71115565f",
        "0.8427008f", "0.92290014f", "0.96610516f", "0.9866717f",
        "0.9953223f", "0.9985373f", "0.999593f", "0.9998994f",
        "0.9999779f", "0.9999957f", "0.9999993f", "0.9999999f",
    ),
)  # fmt: skip
"""The same of erf."""
LANES: Final = 16
"""Of the vectors that there is such an instruction for, and pieces."""


def _table(name: str, rows: Sequence[Sequence[str]]) -> str:
    """The definition of an array of numbers of pieces."""
    lines = ",\n".join(f"        {{{', '.join(row)}}}" for row in rows)
    return f"""\
    static const float {name}[{len(rows)}][{LANES}] __attribute__((aligned(64))) = {{
{lines}
    }};"""


def _found(out: str, number: str) -> str:
    """Of each lane, a number of the piece in the last bits of t."""
    return f"""__asm__("vpermps %2, %1, %0" : "=v"({out}) : "v"(t), "v"(*(const @V_any *){number}));"""


def _steps(name: str, rows: Sequence[Sequence[str]]) -> str:
    """The polynomial of a piece at d."""
    return "\n".join(
        f"""    {_found("c", f"{name}[{k}]")}
    p = {"p * d + c" if k else "c"};"""
        for k in range(len(rows))
    )


BODIES: Final[Mapping[str, str]] = {
    "EXP": f"""\
{_table("power", [_POWERS])}
    /* Adding 1.5 * 2^19 rounds to a sixteenth of a whole number, whose last four bits are k. */
    @V t = x * 1.44269504f + 786432.0f, n = t - 786432.0f, r = dlc_exp_rest_@V(x, n), c, p;
    /* Beyond all results, n decides, and r may be anything: its size is made one that it has, also that of NaN. */
    __asm__("vrangeps $2, %2, %1, %0" : "=v"(r) : "v"(r), "v"(dlc_splat_@V(0.022f)));
    {_found("c", "power[0]")}
    p = r * 0.166660741f + 0.500016212f;
    p = p * r + 1.0f;
    p = p * (c * r) + c;
    /* By 2 to the whole part of n. */
    __asm__("vscalefps %2, %1, %0" : "=v"(p) : "v"(p), "v"(n));
    (void)dlc_minc_@V, (void)dlc_maxc_@V, (void)dlc_exp_part_@V; /* of other processors */
""",
    "TANH": f"""\
{_table("from", [_TANH_FROM])}
{_table("piece", _TANH)}
    @V a = dlc_minc_@V(dlc_abs_@V(x), dlc_splat_@V(9.37f)), t = (@V)((@V_mask)(a + 0.625f) >> 21), c, d, p;
    {_found("c", "from[0]")}
    d = a - c;
{_steps("piece", _TANH)}
    p = (@V)((@V_mask)p | ((@V_mask)x & ~0x7fffffff));
    (void)dlc_signed_@V, (void)dlc_exp_rest_@V; /* of other processors */
""",
    "ERF": f"""\
{_table("piece", _ERF)}
    /* Adding 1.5 * 2^21 rounds to a quarter of a whole number, whose last four bits are the piece. */
    @V a = dlc_minc_@V(dlc_abs_@V(x), dlc_splat_@V(3.8749f)), t = a + 3145728.0f, d = a - (t - 3145728.0f), c, p;
{_steps("piece", _ERF)}
    p = (@V)((@V_mask)p | ((@V_mask)x & ~0x7fffffff));
    (void)dlc_pick_@V, (void)dlc_signed_@V, (void)dlc_exp_near_@V; /* of other processors */
""",
}
"""Statements of functions of x for vectors of 16 lanes, with @V for their type: p is the value."""
