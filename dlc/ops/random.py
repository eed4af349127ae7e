"""Random numbers that are a function of a seed, a step and a place: nothing is drawn, so nothing depends on order.

Every element is one block of Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3,
SC 2011), computed in integers of 32 and 64 bits: equal bits on every target, for any number of threads and whatever
the loops look like. The key is the seed; the counter is (place, place / 2³², step, stream), of which the first word of
the block is taken. `seed` and `step` are operands (i64[]), so that a training step can keep them as state; `stream`
tells apart the ops of one model that share a seed. Of `step` the low 32 bits count.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import numpy as np

from dlc.base.types import Array, DType, Type, f16, f32, i64
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, comp, grid
from dlc.kernel.expr import Const, Expr, Number, apply, select
from dlc.kernel.nest import Param
from dlc.ops.elementwise import Cos, Log, Mul, Sqrt, Sub
from dlc.ops.pointwise import scalar

Words = tuple[Expr, Expr, Expr, Expr]
_WORD: Final = 1 << 32
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
ROUNDS: Final = 10
_CHUNK: Final = 1 << 14
"""Elements at once, so that what is computed on the way stays in a processor's cache."""


def philox(counter: Words, key: tuple[Expr, Expr]) -> Words:
    """The block of four u32 words that Philox-4x32-10 makes of a counter of four and a key of two u32 words."""
    a, b, c, d = counter
    for n in range(ROUNDS):
        # Multiples of the Weyl constants are added to the key itself: a chain of ten sums would be ten variables.
        k, m = (word + n * step % _WORD for word, step in zip(key, _WEYL, strict=True))
        (high0, low0), (high1, low1) = (_product(x, f) for x, f in zip((a, c), _MULTIPLIERS, strict=True))
        a, b, c, d = _xor(_xor(high1, b), k), low1, _xor(_xor(high0, d), m), low0
    return a, b, c, d


def _product(x: Expr, factor: int) -> tuple[Expr, Expr]:
    """The upper and the lower word of x · factor."""
    wide = apply("u64", x) * factor
    return apply("u32", wide // _WORD), apply("u32", wide)


def _xor(a: Expr, b: Expr) -> Expr:
    return apply("bitxor", a, b)


def _word(e: Expr) -> Expr:
    """The low 32 bits of an i64."""
    return apply("u32", e)


def random_bits(place: Expr, seed: Param, step: Param | None, stream: int) -> Expr:
    """A u32 that is uniform over all words: the one at `place` (i64) for this seed, step and stream."""
    s = seed[()]
    above: Expr = apply("u32", Const(0))
    step_word = above if step is None else _word(step[()])
    counter = _word(place), _word(place // _WORD), step_word, apply("u32", Const(stream))
    return philox(counter, (_word(s), _word(s // _WORD)))[0]


def _place(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """The number of an element in row-major order."""
    place: Expr = Const(0)
    for i, extent in zip(index, shape, strict=True):
        place = place * extent + i
    return place


class _Random(Op, abstract=True):
    """Base of the ops that are random: what each of them checks."""

    def _check(self, seed: Param, step: Param | None, stream: int) -> None:
        for what, operand in (("seed", seed), ("step", step)):
            if operand is not None and operand.type != Type(i64, ()):
                raise ShapeError(f"the {what} must be i64[], not {operand.type}")
        if not 0 <= stream < _WORD:
            raise ShapeError(f"stream {stream} is not in 0 … {_WORD - 1}")


class RandomUniform(_Random):
    """y ~ U[0, 1), of the float type and the shape `of`: n random bits times 2⁻ⁿ, n of its precision, at most 32.

    So f32 takes the 2²⁴ multiples of 2⁻²⁴, f16 the 2¹¹ of 2⁻¹¹, f64 the 2³² of 2⁻³².
    """

    seed: Op
    of: Type
    step: Op | None = None
    stream: int = 0

    def define(self, seed: Any, step: Any) -> Comp:
        self._check(seed, step, self.stream)
        if not self.of.dtype.is_float:
            raise ShapeError(f"random numbers are floats, not {self.of}")
        i = grid(self.of.shape)
        return comp(i, _unit(random_bits(_place(i, self.of.shape), seed, step, self.stream), self.of.dtype))

    def evaluate(self, *args: Array) -> Any:
        # Whole weights are drawn when a model is compiled: there the kernel, op by op, takes 30 times as long.
        seed, step = int(args[0]), int(args[1]) if len(args) > 1 else 0
        kept = _kept_bits(self.of.dtype)
        y = np.empty(self.of.size, self.of.dtype.numpy)
        for start in range(0, y.size, _CHUNK):
            places = np.arange(start, min(start + _CHUNK, y.size), dtype=np.uint64)
            y[start : start + _CHUNK] = random_words(places, seed, step, self.stream) >> np.uint64(32 - kept)
        return np.multiply(y, 2.0**-kept, out=y).reshape(self.of.shape)


def random_words(places: Array, seed: int, step: int, stream: int) -> Array:
    """The word of `random_bits` at every place (u64[…], row-major numbers of elements), in u64: 0 … 2³² - 1."""
    low, half = np.uint64(_WORD - 1), np.uint64(32)
    a, b = places & low, places >> half
    c, d = (np.full_like(places, value % _WORD) for value in (step, stream))
    for n in range(ROUNDS):
        k, m = (np.uint64((word + n * weyl) % _WORD) for word, weyl in zip((seed, seed >> 32), _WEYL, strict=True))
        p, q = (x * np.uint64(f) for x, f in zip((a, c), _MULTIPLIERS, strict=True))
        a, b, c, d = (q >> half) ^ b ^ k, q & low, (p >> half) ^ d ^ m, p & low
    return a


def _kept_bits(dtype: DType) -> int:
    """The upper bits of a word that make a number of [0, 1): as many as the type holds exactly."""
    return {f16: 11, f32: 24}.get(dtype, 32)


def _unit(bits: Expr, dtype: DType) -> Expr:
    """A word as a number of [0, 1)."""
    kept = _kept_bits(dtype)
    upper = bits // (1 << 32 - kept) if kept < 32 else bits
    # By way of a signed integer where it fits: few processors convert unsigned ones.
    whole = apply("i32", upper) if kept < 32 else upper
    return apply(dtype.name, whole) * 2.0**-kept


class RandomNormal(Op):
    """y ~ N(0, 1), of the float type and the shape `of`: √(-2 ln(1 - u)) · cos 2πv of two independent `RandomUniform`.

    Box and Muller 1958. `v` takes the stream whose upper bit is the other. In f32 |y| is at most 5.8.
    """

    seed: Op
    of: Type
    step: Op | None = None
    stream: int = 0

    def expand(self) -> Op:
        u, v = (RandomUniform(self.seed, self.of, self.step, self.stream ^ flip) for flip in (0, 1 << 31))
        number = partial(scalar, dtype=self.of.dtype)
        radius = Sqrt(Mul(Log(Sub(number(1.0), u)), number(-2.0)))
        return Mul(radius, Cos(Mul(v, number(2 * math.pi))))


class Dropout(_Random):
    """y = x / (1 - ratio) where the word of an element is at least ratio · 2³², else 0: training mode.

    Srivastava et al. 2014, scaled as in ONNX Dropout 22 and torch.nn.functional.dropout. The mask is a function of
    seed, step and stream alone: the gradient computes it again, and nothing is stored. `ratio` is in [0, 1]; 0 gives
    x, 1 gives zeros.
    """

    x: Op
    seed: Op
    step: Op | None = None
    ratio: float = 0.5
    stream: int = 0

    def define(self, x: Any, seed: Any, step: Any) -> Comp:
        self._check(seed, step, self.stream)
        i = grid(x.shape)
        if not x.dtype.is_float:
            raise ShapeError(f"dropout scales: x must be of a float type, not {x.type}")
        kept = _kept(self.ratio, i, x.shape, seed, step, self.stream)
        # With nothing to choose the branch stands alone, and zero must still have the type of x.
        return comp(i, select(kept, x[i] * scale_of(self.ratio), apply(x.dtype.name, 0.0)) if self.ratio else x[i])


class DropoutMask(_Random):
    """Whether `Dropout` of the same seed, step, ratio and stream keeps an element of a tensor of this shape: bool."""

    seed: Op
    to: tuple[int, ...]
    step: Op | None = None
    ratio: float = 0.5
    stream: int = 0

    def define(self, seed: Any, step: Any) -> Comp:
        self._check(seed, step, self.stream)
        i = grid(self.to)
        return comp(i, _kept(self.ratio, i, self.to, seed, step, self.stream))


def scale_of(ratio: float) -> float:
    """What kept elements are multiplied with, so that the mean stays; 0 where nothing is kept."""
    return 1.0 / (1.0 - ratio) if ratio < 1.0 else 0.0


def _kept(
    ratio: float, index: tuple[Expr, ...], shape: tuple[int, ...], seed: Param, step: Param | None, stream: int
) -> Expr:
    if not 0.0 <= ratio <= 1.0 or math.isnan(ratio):
        raise ShapeError(f"the ratio of elements to drop must be in [0, 1], not {ratio}")
    threshold: Number = round(ratio * _WORD)
    if threshold in (0, _WORD):
        return Const(threshold == 0)
    return random_bits(_place(index, shape), seed, step, stream) >= threshold
