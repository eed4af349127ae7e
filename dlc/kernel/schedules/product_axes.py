"""Which axes of a product are its rows, which its columns, and which it adds up.

    out[m, n] += Σₖ a(m, k)·b(k, n)                  m: one row axis, n: all columns that are contiguous in `out`

Where one factor has nothing contiguous along these columns, they are those along which it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.kernel.expr import Apply, Axis, Load, axes_in, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.flat import coefficient, offset
from dlc.kernel.schedules.groups import Group
from dlc.kernel.schedules.machine import PANEL
from dlc.kernel.schedules.pack import is_bare
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.simplify import conjuncts

# Columns in a multiple of this make whole panels, whatever the vectors.
PANELS = 2 * PANEL
# Of fewer columns most of a panel would be empty.
NARROW = PANEL


@dataclass(frozen=True)
class ProductAxes:
    """Which axis does what in a product.

    Attributes:
        a: The factors that have the rows.
        b: The factors that have the columns.
        row: The axis of the rows.
        run: Output axes that the columns walk as one, outermost first.
        outer: The other output axes that `a` has.
        around: Output axes that `a` does not have and columns do not walk.
        reduced: Reduction axes, the one with the longest steps in `a` first.
    """

    a: tuple[Load, ...]
    b: tuple[Load, ...]
    row: Axis
    run: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    around: tuple[Axis, ...]
    reduced: tuple[Axis, ...]

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return math.prod(x.extent for x in self.run)


def product_axes(group: Group, kernel: Kernel) -> ProductAxes:
    """Which axis does what in the first nest of a group; raises Unfit where it is no product of rows and columns."""
    nest, last = group.nests[0], group.nests[-1]
    factors = _factors(nest)
    if len(factors) < 2:
        raise Unfit("it is no sum of products of tensors")
    if any(n.where is not None for n in group.nests[1:]):
        raise Unfit("a follower has a guard")
    at = offset(last.index, kernel.tensors[last.out].shape)
    steps = {x: n for x in group.shared if (n := coefficient(at, x))}
    near = _near(nest, factors, steps, kernel)
    a = tuple(x for x in factors if near not in axes_in(x))
    b = tuple(x for x in factors if near in axes_in(x))
    if near is None or not a or not b:
        raise Unfit("no factor has the columns alone")
    in_a, in_b = (frozenset(axes_in(*x)) for x in (a, b))
    run = _run(nest, factors, steps, near)
    rows = [x for x in group.shared if x in in_a and x not in in_b]
    if not rows:
        raise Unfit("no output axis belongs to the rows alone")
    if _in_panels(b, run):
        raise Unfit("the operand of the columns lies in panels already")
    row = max(rows, key=lambda x: x.extent)
    others = [x for x in group.shared if x != row and x not in run]
    place = offset(a[0].index, kernel.tensors[a[0].param].shape)
    strides = {x: abs(coefficient(place, x) or 0) for x in nest.axes if x in nest.reduction_axes}
    reduced = tuple(sorted(strides, key=lambda x: -strides[x]))
    outer = tuple(x for x in others if x in in_a)
    return ProductAxes(a, b, row, tuple(run), outer, tuple(x for x in others if x not in in_a), reduced)


def _run(nest: Nest, factors: Sequence[Load], steps: Mapping[Axis, int], near: Axis) -> list[Axis]:
    """The output axes of one factor that columns walk as one, `near` last."""
    run = [near]
    while True:
        stride = steps[near] * math.prod(x.extent for x in run)
        mine = (
            x for x in steps if steps[x] == stride and all((x in axes_in(f)) == (near in axes_in(f)) for f in factors)
        )
        wider = [x for x in mine if x not in run]
        if len(wider) != 1:
            return run
        if near.extent % PANELS == 0 and wider[0] in axes_in(*conjuncts(nest.where)):
            return run  # whole panels, for each of which the guard is the same
        run.insert(0, wider[0])


def _near(nest: Nest, factors: Sequence[Load], steps: Mapping[Axis, int], kernel: Kernel) -> Axis | None:
    """The last axis of the columns: contiguous in the output, or else in a factor that has more than a panel of them.

    Panels are then copied by whole vectors, and sums that lie apart in the output are stored one by one at the end.
    """
    first = min(steps, key=lambda x: steps[x], default=None)
    places = [offset(x.index, kernel.tensors[x.param].shape) for x in factors]
    contiguous = [x for x in steps if sum(coefficient(p, x) == 1 for p in places) == 1 and _in_one(factors, x)]
    if first is None or _in_panels(factors, [first]):
        return first
    columns = {x: math.prod(r.extent for r in _run(nest, factors, steps, x)) for x in (first, *contiguous)}
    if first in contiguous and columns[first] >= NARROW:
        return first
    wide = [x for x in contiguous if x.extent >= PANELS or columns[x] > columns[first] < NARROW]
    return min(wide, key=lambda x: steps[x], default=first)


def _in_one(factors: Sequence[Load], axis: Axis) -> bool:
    return sum(axis in axes_in(x) for x in factors) == 1


def _factors(nest: Nest) -> tuple[Load, ...]:
    """The loads whose product a nest adds up; none for any other nest."""
    found: list[Load] = []
    stack = [nest.body] if nest.reduce == "add" else []
    while stack:
        match stack.pop():
            case Apply("mul", (x, y)):
                stack += (y, x)
            case Load() as load if is_bare(load) and load.param != nest.out:
                found.append(load)
            case _:
                return ()
    return tuple(found)


def _in_panels(b: Sequence[Load], run: Sequence[Axis]) -> bool:
    """Whether `b` has been stored in panels already: subscripts `j // 16` and `j % 16`."""
    parts = (e for x in b for i in x.index for e in walk(i) if isinstance(e, Apply) and e.fn in ("floordiv", "mod"))
    return any(e.args[0] in run for e in parts)
