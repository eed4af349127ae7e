"""Sums of products with a factor that has a scale for each block of terms, as weights of few bits have.

    t[c] += x[k]·((w[k,c] - z[j,c])·s[j,c])   →   for j: p[c] = Σₖ x[k]·w[k,c];  t[c] += (p[c] - Σₖ x[k]·z[j,c])·s[j,c]

Scale and zero point are applied once for a block, and each term is one multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in, operands_of
from dlc.kernel.schedules.flat import axis_inside
from dlc.kernel.schedules.tile import Tile


@dataclass(frozen=True)
class Blocks:
    """A sum of products in blocks of terms.

    Attributes:
        outer: Reduction axes that walk blocks.
        inner: Those that walk the terms of a block.
        terms: What is added up in a block: a product.
        shared: What all columns share of it.
        zero: By which the other factor of the terms is too large; None: it is what it should be.
        scale: What the sum of a block is multiplied by.
    """

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    terms: Expr
    shared: Expr
    zero: Expr | None
    scale: Expr


def blocks_of(t: Tile) -> Blocks | None:
    """How a product's terms form blocks; None where no factor belongs to several of them."""
    found = list(operands_of("mul", t.product.body))
    if len(found) != 3 or t.product.where is not None or any(a.limit is not None for a in t.reduced):
        return None
    shared = [f for f in found if not axis_inside(f, t.column)]
    scales = [f for f in found if axis_inside(f, t.column) and _walks(f, t) != set(t.reduced)]
    if len(shared) != 1 or len(scales) != 1:
        return None
    (a,), (scale,) = shared, scales
    (b,) = (f for f in found if f is not a and f is not scale)
    outer = tuple(x for x in t.reduced if x in _walks(scale, t))
    inner = t.reduced[len(outer) :]
    if outer != t.reduced[: len(outer)]:
        return None
    match b:
        case Apply("sub", (w, z)) if _walks(z, t) <= set(outer) and (isinstance(z, Const) or axis_inside(z, t.column)):
            return Blocks(outer, inner, Apply("mul", (a, w)), a, z, scale)
        case _:
            return Blocks(outer, inner, Apply("mul", (a, b)), a, None, scale)


def _walks(e: Expr, t: Tile) -> set[Axis]:
    """The reduction axes that an expression depends on."""
    return set(axes_in(e)) & set(t.reduced)
