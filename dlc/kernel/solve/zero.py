"""Whether an index expression is zero wherever its axes are: exact for axes of any extent.

    4·((i·6 + j) // 4) + (i·6 + j) % 4 - i·6 - j      zero, whatever i and j are

The linear normal form decides nearly all of them. What it leaves is a sum of parts that share no axis, so each has to
be a constant. Quotients and remainders by literals repeat: moving an axis by a period P changes a part by a constant,

    f(i + P) = f(i) + c      P = d / gcd(a, d) for (a·i + …) // d,

so a part is constant if it is on one period of each axis, and one step further. A few points of the whole box are
looked at before: where a part varies, they nearly always show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from dlc.base.types import Array
from dlc.kernel.evaluate import values_over
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, walk
from dlc.kernel.simplify import is_index, linear

_SLAB: Final = 1 << 18
"""Points that are held at once."""
_SAMPLE: Final = 64


def is_zero(e: Expr) -> bool:
    """Whether an integer expression is 0 at every point of its axes; what loads data is not."""
    if any(isinstance(x, Load) for x in walk(e)):
        return False
    axes = axes_in(e)
    if not all(a.extent > 0 for a in axes):
        return True
    form = linear(e) if is_index(e) else None
    if form is None:
        return _is_constant(e, axes) and _at_origin(e) == 0
    parts = _parts(form.terms)
    return form.constant + sum(map(_at_origin, parts)) == 0 and all(_is_constant(p, axes_in(p)) for p in parts)


def _parts(terms: Sequence[tuple[Expr, int]]) -> list[Expr]:
    """Sums of terms that have no axis in common."""
    parts: list[tuple[set[Axis], Expr]] = []
    for atom, c in terms:
        axes, total = set(axes_in(atom)), atom * c
        apart: list[tuple[set[Axis], Expr]] = []
        for others, part in parts:
            if axes & others:
                axes, total = axes | others, part + total
            else:
                apart.append((others, part))
        parts = [*apart, (axes, total)]
    return [part for _, part in parts]


def _is_constant(e: Expr, axes: Sequence[Axis]) -> bool:
    """Whether an expression has one value on all of the box of its axes."""
    moving = [a for a in axes if a.extent > 1]
    if isinstance(e, Axis) or (isinstance(e, Apply) and e.fn == "mul" and isinstance(e.args[0], Axis)):
        return not moving
    first = _at_origin(e)
    if any((values_over(e, grid) != first).any() for grid in _some(axes)):
        return False
    extents = {a: min(a.extent, (_period(e, a, 1) or a.extent) + 1) for a in axes}
    return not any((values_over(e, grid) != first).any() for grid in _slabs(extents))


def _period(e: Expr, axis: Axis, unit: int) -> int | None:
    """By how much the axis has to move for the value to change by a constant multiple of `unit`; None if nothing is."""
    match e:
        case Const():
            return 1
        case Axis():
            return unit if e == axis else 1
        case Apply("add" | "sub" | "neg", args):
            found = [_period(a, axis, unit) for a in args]
            return math.lcm(*(p for p in found if p)) if all(found) else None
        case Apply("mul", (x, Const(int() as k)) | (Const(int() as k), x)):
            return _period(x, axis, unit // math.gcd(unit, k)) if k else 1
        case Apply("floordiv", (x, Const(int() as c))) if c > 0:
            return _period(x, axis, unit * c)
        case Apply("mod", (x, Const(int() as c))) if c > 0:
            return _period(x, axis, c)
        case _:
            return None if axis in axes_in(e) else 1


def _at_origin(e: Expr) -> int:
    return int(values_over(e, {a: np.zeros((), np.int64) for a in axes_in(e)}))


def _some(axes: Sequence[Axis]) -> Iterator[Mapping[Axis, Array]]:
    """The next to the first and the last of every axis alone, and points all over the box, always the same."""
    for a in axes:
        yield {b: np.asarray([1, a.extent - 1] if a == b and a.extent > 1 else [0, 0]) for b in axes}
    random = np.random.default_rng(0)
    yield {a: random.integers(0, a.extent, _SAMPLE) for a in axes}


def _slabs(extents: Mapping[Axis, int]) -> Iterator[Mapping[Axis, Array]]:
    """All points of a box, in grids of a limited size: the longest axes are cut."""
    axes = sorted(extents, key=lambda a: extents[a])
    whole = [np.arange(extents[a]).reshape([-1] + [1] * d) for d, a in enumerate(axes)]
    yield from ({a: x.copy() for a, x in zip(axes, cut, strict=True)} for cut in _cut(whole, _SLAB))


def _cut(grids: list[Array], limit: int) -> Iterator[list[Array]]:
    """Grids cut until the product of their lengths is within the limit, the shortest last."""
    if not grids:
        yield []
        return
    *rest, last = grids
    # What the others have at most is left to them; a grid of one point is cut no further.
    step = max(1, limit // math.prod(g.size for g in rest))
    for start in range(0, last.size, step):
        for others in _cut(rest, limit // min(step, last.size)):
            yield [*others, last[start : start + step]]
