"""Instructions of processors that generated C uses by name, beside the portable text of what they compute.

A machine's file names those that it has (`instructions`). All of them add dot products of the terms of words to sums,
as `dlc.kernel.loops.program.Dots` defines it: c + a0·b0 + a1·b1 + a2·b2 + a3·b3 in each lane, the bytes of a without a
sign and those of b with one; or c + a0·b0 + a1·b1 of two bf16. They are written as assembler, because the headers that
declare them take compilers longer than a kernel does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlc_backend_c import to_bytes


@dataclass(frozen=True)
class Instruction:
    """How a processor computes dot products of words.

    Attributes:
        name: As machine files call it.
        lanes: Sums in a vector; 1: they are in general registers.
        body: Statements that return c, the sums, plus the dot products of a and b, vectors of i32 that hold the words.
        sums: The name of the type of the sums: i32 of bytes, f32 of bf16.
        single: Whether it is one instruction.
    """

    name: str
    lanes: int
    body: str
    sums: str = "i32"
    single: bool = True


_VNNI: Final = """\
    __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "vm"(b));
    return c;
"""
_VEX_VNNI: Final = """\
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(a), "xm"(b));
    return c;
"""
# Sums of two products fit 32 bits only, so that bytes are widened to 16 bits first: even ones, then odd ones.
_PAIRS: Final = """\
    typedef uint16_t halves __attribute__((vector_size(@B)));
    typedef int16_t signed_halves __attribute__((vector_size(@B)));
    const @U x = (@U)a & 0x00ff00ffu, y = (@U)a >> 8 & 0x00ff00ffu;
    const signed_halves v = (signed_halves)((halves)b << 8) >> 8, w = (signed_halves)b >> 8;
    @V even, odd;
    __asm__("vpmaddwd %2, %1, %0" : "=@R"(even) : "@R"(x), "@R"(v));
    __asm__("vpmaddwd %2, %1, %0" : "=@R"(odd) : "@R"(y), "@R"(w));
    return (@V)((@U)c + (@U)even + (@U)odd);
"""
# Both operands have signs there: 128 is taken from the bytes of a, and its products are put back.
_SIGNED: Final = """\
    const @U x = (@U)a ^ 0x80808080u, most = (@U){0} + 0x80808080u;
    @V moved = {0};
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(moved) : "w"(most), "w"(b));
    c = (@V)((@U)c - (@U)moved);
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(c) : "w"(x), "w"(b));
    return c;
"""
# Subnormal operands and results are zero, and rounding is to nearest, whatever the processor is set to.
_BF16: Final = """\
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "vm"(b));
    return c;
"""

# Bytes as pairs of 16 bits, even ones and odd ones; sums of pairs of products are added at once.
_DSP: Final = """\
    uint32_t x, y, v, w;
    __asm__("uxtb16 %0, %1" : "=r"(x) : "r"(a));
    __asm__("uxtb16 %0, %1, ror #8" : "=r"(y) : "r"(a));
    __asm__("sxtb16 %0, %1" : "=r"(v) : "r"(b));
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(w) : "r"(b));
    __asm__("smlad %0, %1, %2, %0" : "+r"(c) : "r"(x), "r"(v));
    __asm__("smlad %0, %1, %2, %0" : "+r"(c) : "r"(y), "r"(w));
    return c;
"""

INSTRUCTIONS: Final[Mapping[str, Instruction]] = {
    i.name: i
    for i in (
        Instruction("avx512-vnni", 16, _VNNI),
        Instruction("avx-vnni", 8, _VEX_VNNI),
        Instruction("avx512-pairs", 16, _PAIRS.replace("@R", "v"), single=False),
        Instruction("avx2-pairs", 8, _PAIRS.replace("@R", "x"), single=False),
        Instruction("arm-dotprod", 4, _SIGNED, single=False),
        Instruction("arm-dsp", 1, _DSP, single=False),
        Instruction("avx512-bf16", 16, _BF16, "f32"),
    )
}

_PORTABLE: Final = """\
    const @U x = (@U)a, w = (@U)b;
    int k;
    for (k = 0; k < 4; ++k)
        c = (@V)((@U)c + (@U)((@V)(x >> 8 * k & 255u) * ((@V)(w << (24 - 8 * k)) >> 24)));
    return c;
"""
_PORTABLE_BF16: Final = """\
    const @U x = (@U)a, w = (@U)b;
    c += (@F)(x << 16) * (@F)(w << 16);
    return c + (@F)(x & 0xffff0000u) * (@F)(w & 0xffff0000u);
"""
PORTABLE_BF16: Final = 6
"""Operations of it."""
_VECTOR: Final = """\
typedef int32_t @V __attribute__((vector_size(@B)));
typedef int32_t @V_any __attribute__((vector_size(@B), aligned(4), may_alias));
typedef int32_t @V_bytes __attribute__((vector_size(@B), aligned(1), may_alias));
DLC_INLINE @V dlc_splat_@V(int32_t x)
{
    @V v = {@X};
    return v;
}
DLC_INLINE @V dlc_add_@V(@V a, @V b) { return (@V)((@U)a + (@U)b); }
DLC_INLINE @V dlc_sub_@V(@V a, @V b) { return (@V)((@U)a - (@U)b); }
DLC_INLINE @V dlc_mul_@V(@V a, @V b) { return (@V)((@U)a * (@U)b); }
/* Bytes as lanes of 32 bits: what gcc makes of conversions takes many times as long. */
DLC_INLINE @V dlc_load_u8_@V(const uint8_t *p)
{
#if @WIDENS
    @V x;
    __asm__("vpmovzxbd %1, %0" : "=@R"(x) : "m"(*(const u8x@N_any *)p));
    return x;
#else
    return (@V)__builtin_convertvector(*(const u8x@N_any *)p, @U);
#endif
}
DLC_INLINE @V dlc_load_i8_@V(const int8_t *p)
{
#if @WIDENS
    @V x;
    __asm__("vpmovsxbd %1, %0" : "=@R"(x) : "m"(*(const u8x@N_any *)p));
    return x;
#else
    return ((@V)__builtin_convertvector(*(const u8x@N_any *)p, @U) ^ 128) - 128;
#endif
}
DLC_INLINE void dlc_store_u8_@V(uint8_t *p, @V x)
{
#if defined(__AVX512F__) && @N == 16
    __asm__("vpmovdb %1, %0" : "=m"(*(u8x@N_any *)p) : "v"(x));
#else
    *(u8x@N_any *)p = __builtin_convertvector(__builtin_convertvector((@U)x, u16x@N), u8x@N);
#endif
}
DLC_INLINE void dlc_store_i8_@V(int8_t *p, @V x) { dlc_store_u8_@V((uint8_t *)p, x); }
/* Toward zero, of lanes that are NaN, which gives 0 where a byte is meant, or well within the range. */
/* needs nan */
DLC_INLINE @V dlc_bounded_@V(f32x@N x)
{
    return __builtin_convertvector((f32x@N)((@U)x & (@U)(x == x)), @V);
}
/* Half to even: halves are gone where numbers of f32 are whole ones. */
/* needs association, rounding, signed_zeros */
DLC_INLINE f32x@N dlc_round_f32x@N(f32x@N x)
{
#if defined(__AVX512F__) && @N == 16
    f32x@N y;
    __asm__("vrndscaleps $4, %1, %0" : "=v"(y) : "v"(x));
    return y;
#elif defined(__AVX__) && @N < 16
    f32x@N y;
    __asm__("vroundps $4, %1, %0" : "=x"(y) : "x"(x));
    return y;
#else
    const @U sign = (@U)x & 0x80000000u, size = (@U)x ^ sign;
    const f32x@N whole = ((f32x@N)size + 8388608.0f) - 8388608.0f;
    const @U small = (@U)((f32x@N)size < 8388608.0f);
    return (f32x@N)((((@U)whole & small) | (size & ~small)) | sign);
#endif
}
DLC_INLINE @V dlc_dots_@V(@V c, @V a, @V b)
{
@DOTS_OF_i32}
/* The same of two bf16. */
DLC_INLINE @F dlc_dots_@F(@F c, @V a, @V b)
{
@DOTS_OF_f32}
"""
_WORDS: Final = """
/* Also where code is to be small: a call takes as long as what it computes. */
#if defined(__GNUC__)
#define DLC_ALWAYS __attribute__((always_inline))
#else
#define DLC_ALWAYS
#endif

DLC_INLINE DLC_ALWAYS int32_t dlc_dots_i32(int32_t c, int32_t a, int32_t b)
{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32) && !defined(__aarch64__)
@DSP#else
    const uint32_t x = (uint32_t)a, w = (uint32_t)b;
    int k;
    for (k = 0; k < 32; k += 8)
        c = dlc_add_i32(c, (int32_t)(x >> k & 255u) * ((int32_t)((w >> k & 255u) ^ 128u) - 128));
    return c;
#endif
}
""".replace("@DSP", _DSP)
"""Dot products in general registers, by the instructions of Arm's DSP extension where a compiler knows them."""
WORD: Final = "typedef int32_t dlc_word __attribute__((aligned(1), may_alias));\n"
"""Four bytes wherever they lie."""


def words_of_sums(names: Sequence[str]) -> str:
    """Dot products in general registers, for machines that have an instruction for them."""
    return WORD + _WORDS if in_general_registers(names) else ""


def in_general_registers(names: Sequence[str]) -> bool:
    """Whether some instructions multiply bytes in general registers."""
    return any(INSTRUCTIONS[n].lanes == 1 for n in names)


def dots_instruction(sums: str, lanes: int, names: Sequence[str]) -> Instruction | None:
    """The first of the instructions of a machine that adds dot products to so many sums of a type, by its name."""
    found = (INSTRUCTIONS[n] for n in names)
    return next((i for i in found if i.lanes == lanes and i.sums == sums), None)


def vector_of_sums(lanes: int, names: Sequence[str]) -> str:
    """Vectors of i32 and their functions; dot products by an instruction of a machine that has these."""
    text = _VECTOR + to_bytes.VECTORS
    for sums, portable in (("i32", _PORTABLE), ("f32", _PORTABLE_BF16)):
        found = dots_instruction(sums, lanes, names)
        text = text.replace(f"@DOTS_OF_{sums}", portable if found is None else found.body)
    text = (
        text.replace("@V", f"i32x{lanes}")
        .replace("@F", f"f32x{lanes}")
        .replace("@U", f"u32x{lanes}")
        .replace("@B", str(4 * lanes))
    )
    wide = lanes == 16
    text = text.replace("@WIDENS", "defined(__AVX512F__)" if wide else "defined(__AVX2__)").replace(
        "@R", "v" if wide else "x"
    )
    return text.replace("@N", str(lanes)).replace("@X", ", ".join(["x"] * lanes))
