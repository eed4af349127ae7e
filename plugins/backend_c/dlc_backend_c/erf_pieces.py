"""erf by pieces, for processors that find one of sixteen coefficients for each lane by an instruction.

    erf(x) = x · g(|x|),   g(a) = pₖ(a - cₖ) for a in [k/4, (k+1)/4], cₖ the middle of it, k < 16

Of degree 5 the pieces have an error of at most 3e-9 relative to g, fitted by least squares that are weighted towards
the largest error; rounding makes it 1.5e-7. The functions of `vector_math` take two polynomials and exp instead.
"""

from __future__ import annotations

from typing import Final

COEFFICIENTS: Final = (
    (
        "-0.0194441937f", "-0.0462020971f", "-0.046420306f", "-0.0255043004f",
        "-0.000650145288f", "0.0143846404f", "0.0168994404f", "0.0120439418f",
        "0.00591294328f", "0.00167795457f", "-0.000305614842f", "-0.000863714726f",
        "-0.000814758416f", "-0.000612894539f", "-0.000427390274f", "-0.000293173827f",
    ),
    (
        "0.106054321f", "0.0626983121f", "0.00198038178f", "-0.0444000661f",
        "-0.0603374317f", "-0.0504389368f", "-0.0297867097f", "-0.0112714162f",
        "-0.00012737808f", "0.00437601516f", "0.00504130451f", "0.00421292987f",
        "0.00313142245f", "0.00223550131f", "0.00158987427f", "0.00114451128f",
    ),
    (
        "0.0553772375f", "0.142984897f", "0.17534402f", "0.151600838f",
        "0.0962298885f", "0.0390333869f", "-0.00137376739f", "-0.0213114228f",
        "-0.0262708496f", "-0.0236383229f", "-0.018693205f", "-0.0140004568f",
        "-0.0103348251f", "-0.00767579395f", "-0.00578537956f", "-0.00443425542f",
    ),
    (
        "-0.365642309f", "-0.288495272f", "-0.16526486f", "-0.0397309512f",
        "0.0541918091f", "0.104267411f", "0.117074728f", "0.107401393f",
        "0.088863492f", "0.069871515f", "0.0539598949f", "0.0417536981f",
        "0.0326962695f", "0.0259983577f", "0.020990666f", "0.0171860252f",
    ),
    (
        "-0.0931549445f", "-0.259446084f", "-0.373897403f", "-0.424389422f",
        "-0.419026196f", "-0.377613425f", "-0.32101351f", "-0.264274955f",
        "-0.215058103f", "-0.175459579f", "-0.144657627f", "-0.120876245f",
        "-0.102378264f", "-0.0877875611f", "-0.0760992467f", "-0.0665972009f",
    ),
    (
        "1.12252963f", "1.07764506f", "0.997185409f", "0.896085799f",
        "0.789678454f", "0.689578235f", "0.602119207f", "0.529061377f",
        "0.469339281f", "0.420722961f", "0.380874157f", "0.347809434f",
        "0.319996834f", "0.296295762f", "0.275861979f", "0.258064508f",
    ),
)  # fmt: skip
"""C literals of all pieces, those of the highest power first."""
_ROWS: Final = ",\n".join(f"        {{{', '.join(row)}}}" for row in COEFFICIENTS)
_STEPS: Final = "\n".join(
    f"""    __asm__("vpermps %2, %1, %0" : "=v"(c) : "v"(t), "v"(*(const @V_any *)piece[{k}]));
    p = {"p * d + c" if k else "c"};"""
    for k in range(len(COEFFICIENTS))
)
LANES: Final = 16
"""Of the vectors that there is such an instruction for, and pieces."""
BODY: Final = f"""\
    static const float piece[{len(COEFFICIENTS)}][{LANES}] __attribute__((aligned(64))) = {{
{_ROWS}
    }};
    /* Adding 1.5 * 2^21 rounds to a quarter of a whole number, whose last four bits are the piece. */
    @V a = dlc_minc_@V(dlc_abs_@V(x), dlc_splat_@V(3.99f)), b = a - 0.125f, t = b + 3145728.0f;
    @V d = b - (t - 3145728.0f), c, p;
{_STEPS}
    p = (@V)((@V_mask)dlc_minc_@V(a * p, dlc_splat_@V(1.0f)) | ((@V_mask)x & ~0x7fffffff));
"""
"""Statements of a function of x for vectors of 16 lanes, with @V for their type."""
