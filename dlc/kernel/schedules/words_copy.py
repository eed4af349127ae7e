"""The factor of the columns of a sum of products of bytes, copied so that four terms of a column make a word.

    b[k, c]   →   words[c // 16, k // 4, c % 16, k % 4]

Constant weights lie like that already; the factor of a product of two activations does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlc.base.types import Type, i8
from dlc.kernel.expr import Apply, Axis, Expr, Load, apply, axes_in, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import WORD, Stmt, Store, wrap
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.flat import flat_expr, offset
from dlc.kernel.schedules.groups import Group
from dlc.kernel.schedules.machine import PANEL
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.simplify import simplify_nest

TERMS = "terms"
"""The axis of the terms of a word."""
FEWEST = 8
"""Rows from which on a copy pays."""


@dataclass(frozen=True)
class WordsCopy:
    """A copy in words.

    Attributes:
        group: The group, its first nest reading the copy.
        batch: Output axes that the factor has beside the columns: each of their values has a copy of its own.
        fill: Loops that write the copy.
        buffer: Its memory.
    """

    group: Group
    batch: tuple[Axis, ...]
    fill: tuple[Stmt, ...]
    buffer: Param


def factors_of(nest: Nest) -> tuple[Load, Load] | None:
    """The two factors of a sum of products, of bytes that are converted to i32 or as they are; else None.

    Of bytes, the first is that of the rows and the second that of the columns.
    """
    match nest.reduce, nest.body:
        case "add", Apply("mul", (Load() as a, Load() as b)):
            return a, b
        case "add", Apply("mul", (Apply("i32", (Load() as a,)), Apply("i32", (Load() as b,)))):
            return a, b
        case _:
            return None


def copied_words(group: Group, kernel: Kernel, column: Axis) -> WordsCopy:
    """The group with its factor of the columns copied; raises Unfit where that does not pay."""
    nest = group.nests[0]
    found = factors_of(nest)
    assert found is not None
    a, b = found
    rows = math.prod(x.extent for x in group.shared if x in axes_in(a) and x not in axes_in(b))
    if rows < FEWEST:
        raise Unfit(f"copies pay from {FEWEST} rows on, and there are {rows}")
    terms = next(x for x in nest.axes if x.name == TERMS)
    summed = tuple(x for x in nest.axes if x in nest.reduction_axes and x != terms)
    if not {*summed, terms} <= set(axes_in(b)):
        raise Unfit("the factor of the columns does not have all axes of the sum")
    shape = (-(-column.extent // PANEL), *(x.extent for x in summed), PANEL, WORD)
    buffer = Param("words", Type(i8, shape))
    panel, lane = Axis("wp", shape[0]), Axis("wl", PANEL)
    from_: Expr = panel * PANEL + lane
    if column.extent % PANEL:  # any value does where no column is
        from_ = apply("min", from_, column.extent - 1)
    place = offset((panel, *summed, lane, terms), shape)
    value = substitute(flat_expr(b, kernel.tensors), {column: from_})
    fill = wrap((panel, *summed, lane, terms), (Store("words", place, value),))
    index = (column // PANEL, *summed, column % PANEL, terms)
    assert isinstance(nest.body, Apply)
    body = Apply("mul", (nest.body.args[0], Apply("i32", (Load("words", index),))))
    changed = Group((simplify_nest(replace(nest, body=body)), *group.nests[1:]), group.shared)
    return WordsCopy(changed, tuple(x for x in group.shared if x in axes_in(b) and x != column), fill, buffer)
