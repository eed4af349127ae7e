"""What tiles by digits have of their own: a factor as digits of bytes, and sums of blocks as dot products of them.

    for k in a block: p[c] = Σₖ x[k]·w[k,c]
    →
    u = maxₖ |x[k]| / LARGEST;  d₂[k]·2¹⁴ + d₁[k]·2⁷ + d₀[k] = round(x[k] / u)
    p[c] = u·(2¹⁴·Σₖ d₂[k]·w[k,c] + 2⁷·Σₖ d₁[k]·w[k,c] + Σₖ d₀[k]·w[k,c])

Sums of digits are exact, so that what differs from the sum of floats is that every x[k] is rounded to a multiple of u.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from dlc.base.types import Type, f32, i8, i32
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, loads
from dlc.kernel.loops.program import WORD, Block, Dots, Fold, Lanes, Let, Local, Prefetch, Set, Stmt, Store, Words, wrap
from dlc.kernel.nest import Param
from dlc.kernel.schedules.block_scales import Blocks, blocks_of
from dlc.kernel.schedules.flat import at, coefficient
from dlc.kernel.schedules.prefetch import LINE
from dlc.kernel.schedules.tile import Spot, Tile, mapping_of
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import linear, simplify

WEIGHTS: Final = (float(1 << 14), float(1 << 7), 1.0)
"""What digits count: each of those below the first takes 7 bits and rounds to nearest, so that it fits a byte."""
LARGEST: Final = 127 * WEIGHTS[0]
"""What the largest factor of a block becomes."""
TINY: Final = 2.0**-100
"""The largest factor of a block counts as much at least: its inverse is a float."""
EXACT: Final = 1 << 24
"""Whole numbers up to here are exact as f32."""
WRITTEN_OUT: Final = 4
"""Words of a block up to which each is written by itself."""
AHEAD: Final = 4096
"""Bytes from where a panel is read to where it is wanted soon: a core's own foresight ends with a page."""


@dataclass(frozen=True)
class Digits:
    """How the blocks of a sum are walked by words, and where the digits of the shared factor lie.

    Attributes:
        blocks: What is summed, in blocks.
        shared: The factor that is taken apart.
        narrow: The packed factor.
        each: The axis of the elements of a word.
        per_byte: How many of them a byte holds.
        steps: The axes of a block's words, outermost first.
    """

    blocks: Blocks
    shared: Load
    narrow: Load
    each: Axis
    per_byte: int
    steps: tuple[Axis, ...]

    @property
    def count(self) -> int:
        """Blocks."""
        return math.prod(a.extent for a in self.blocks.outer)

    @property
    def words(self) -> int:
        """Words of a block."""
        return math.prod(a.extent for a in self.steps)

    @property
    def buffers(self) -> tuple[Param, ...]:
        """Digits by what they count, by their place in a byte, and by block; the unit of each block, and its total."""
        shape = (len(WEIGHTS), self.per_byte, self.count, self.words * WORD)
        return (
            Param("digits", Type(i8, shape)),
            Param("units", Type(f32, (self.count,))),
            Param("totals", Type(f32, (self.count,))),
        )

    @property
    def block(self) -> Expr:
        """The number of a block."""
        return _number(self.blocks.outer)

    def place(self, digit: int, part: int, inside: Expr) -> Expr:
        """Where the digits of a part of a block's terms lie, some bytes further on."""
        row = self.words * WORD
        return simplify(self.block * row + inside + (digit * self.per_byte + part) * self.count * row)


def digits_of(t: Tile) -> Digits:
    """How the product of a tile with one row may be computed by digits.

    Raises:
        Unfit: it may not.
    """
    found = blocks_of(t) if t.row is None and t.product.reduce == "add" else None
    if found is None:
        raise Unfit("no factor belongs to several terms of one row")
    packed = [x for x in loads(found.terms) if x.param in t.packed]
    bare = isinstance(found.terms, Apply) and all(isinstance(x, Load) for x in found.terms.args)
    if len(packed) != 1 or not bare or not isinstance(found.shared, Load) or found.shared in packed:
        raise Unfit("its terms are no products of a packed factor and another")
    (narrow,), word = packed, t.packed[packed[0].param]
    *steps, each = found.inner
    require(
        (
            (t.dtype is f32 and t.dtypes[found.shared.param] is f32, "its factors are not of f32"),
            (word == 2 * WORD, "a byte does not hold two elements"),
            (each.extent == word and _strides(found.shared, found.inner) is not None, "its words are not whole"),
            (_strides(narrow, (each,)) == (1,), "elements of words do not lie next to each other"),
        )
    )
    digits = Digits(found, found.shared, narrow, each, word // WORD, tuple(steps))
    terms = digits.words * word
    conditions = (
        (terms % (digits.per_byte * t.lanes) == 0, f"blocks of {terms} terms are no whole vectors"),
        (terms * 0xFF * 0x7F < EXACT, f"sums of {terms} products may not be exact"),
    )
    require(conditions)
    return digits


def _strides(load: Load, axes: Sequence[Axis]) -> tuple[int, ...] | None:
    """How far a load moves per step of axes that walk neighbouring elements; None where they do not."""
    found = tuple(coefficient(load.index[0], a) for a in axes)
    wanted = tuple(math.prod(a.extent for a in axes[k + 1 :]) for k in range(len(axes)))
    return wanted if found == wanted else None


def _number(axes: Sequence[Axis]) -> Expr:
    """Counts the points of axes, the last fastest."""
    found: Expr = Const(0)
    for a in axes:
        found = found * a.extent + a
    return simplify(found)


def taken_apart(t: Tile, of: Digits) -> tuple[Stmt, ...]:
    """Loops that write the digits of the shared factor, and the unit and the total of each block."""
    base = at(of.shared.index[0], {a: Const(0) for a in of.blocks.inner})
    parts = [(part, n) for n in range(of.words * WORD // t.lanes) for part in range(of.per_byte)]
    out: list[Stmt] = []
    values = [Local(f"x{part}_{n}", f32, t.lanes) for part, n in parts]
    for x, (part, n) in zip(values, parts, strict=True):
        first = Load(of.shared.param, (simplify(base + (n * t.lanes * of.per_byte + part)),))
        out.append(Let(x, Lanes(first, t.lanes, of.per_byte)))
    most, whole = Local("most", f32, t.lanes), Local("whole", f32, t.lanes)
    top, inverse, unit = (Local(name, f32) for name in ("top", "inverse", "unit"))
    largest: Expr = Apply("abs", (values[0],))
    for x in values[1:]:
        largest = Apply("max", (largest, Apply("abs", (x,))))
    out += (Let(most, largest), Let(top, Apply("max", (Fold("max", most), Const(TINY)))))
    out += (Let(unit, top / LARGEST), Let(inverse, LARGEST / top), Let(whole, Const(0.0)))
    for x, (part, n) in zip(values, parts, strict=True):
        rest = Local(f"r{part}_{n}", f32, t.lanes)
        out += (Let(rest, x * inverse), Set(whole, whole + x))
        for d, weight in enumerate(WEIGHTS):
            digit = Local(f"d{part}_{n}_{d}", f32, t.lanes)
            if weight > 1:
                out += (Let(digit, Apply("round", (rest * (1 / weight),))), Set(rest, rest - digit * weight))
            value = digit if weight > 1 else Apply("round", (rest,))
            out.append(Store("digits", of.place(d, part, Const(n * t.lanes)), Apply("i8", (value,)), t.lanes))
    total = Local("total", f32)
    out += (Let(total, Fold("add", whole)), Store("units", of.block, unit), Store("totals", of.block, total))
    return wrap(of.blocks.outer, (Block(tuple(out)),))


def sums_of_digits(t: Tile, s: Spot, parts: Sequence[Local], whole: Local | None) -> tuple[Stmt, ...]:
    """Declares the sums of a block's terms, one for each vector, and what the terms of the shared factor add up to."""
    of = digits_of(t)
    sums = [[Local(f"s{v}_{d}", i32, t.lanes) for d in range(len(WEIGHTS))] for v in range(len(parts))]
    start = tuple(Let(x, Const(0)) for row in sums for x in row)
    out: list[Stmt] = [*start]
    if of.words <= WRITTEN_OUT:
        for values in product(*(map(Const, range(a.extent)) for a in of.steps)):
            out += _word(t, s, of, sums, dict(zip(of.steps, values, strict=True)))
    else:
        out += wrap(of.steps, _word(t, s, of, sums, {}))
    unit = Load("units", (of.block,))
    for part, row in zip(parts, sums, strict=True):
        terms = [Apply("f32", (x,)) * w if w > 1 else Apply("f32", (x,)) for x, w in zip(row, WEIGHTS, strict=True)]
        value = terms[-1]
        for term in reversed(terms[:-1]):
            value = value + term
        out.append(Let(part, value * unit))
    if whole is not None:
        out.append(Let(whole, Load("totals", (of.block,))))
    return tuple(out)


def _word(
    t: Tile, s: Spot, of: Digits, sums: Sequence[Sequence[Local]], at_step: Mapping[Expr, Expr]
) -> tuple[Stmt, ...]:
    """The terms of one word of each column."""
    lane = Axis("lane", t.lanes)
    step = at(_number(of.steps), at_step)
    out: list[Stmt] = []
    for part in range(of.per_byte):
        words = [Local(f"w{part}_{v}", i32, t.lanes) for v in range(len(sums))]
        for v, word in enumerate(words):
            mapping = {**mapping_of(t, s, 0, s.column + v * t.lanes + lane), **at_step, of.each: Const(part)}
            place = at(of.narrow, mapping)
            assert isinstance(place, Load)
            form = linear(place.index[0])
            if form is None or coefficient(place.index[0], lane) != of.each.extent:
                raise Unfit(f"words of {t.column.name} do not lie next to each other")
            first = form.without(lane).expr()
            last = t.column.extent * of.count * of.words * of.each.extent - 1
            if part == 0 and last > AHEAD * of.per_byte and v * t.lanes * WORD % LINE == 0:
                ahead = apply("min", simplify(first + AHEAD * of.per_byte), last)
                out.append(Prefetch(of.narrow.param, ahead, hint="once"))
            out.append(Let(word, Words(Load(of.narrow.param, (first,)), t.lanes, of.per_byte)))
        for d in range(len(WEIGHTS)):
            digit = Local(f"a{part}_{d}", i32, t.lanes)
            out.append(Let(digit, Words(Load("digits", (of.place(d, part, step * WORD),)))))
            out += (Set(row[d], row[d] + Dots(word, digit)) for row, word in zip(sums, words, strict=True))
    return (Block(tuple(out)),)
