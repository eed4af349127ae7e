"""What the axes of a nest do: batch, row, column, reduction, window.

Schedules and layouts ask for roles, never for op names, so a convolution, a matrix product, their gradients and a
user's kernel text are treated alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc.base.types import DType, i8, u8
from dlc.kernel.expr import Apply, Axis, Expr, Load, axes_in, loads
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS

BYTES = (i8, u8)
"""Types of factors that are summed up in 32 bits."""


@dataclass(frozen=True)
class Roles:
    """Roles of the axes of a contraction `out[…] += a[…] * b[…]`.

    Attributes:
        a: The operand that has the rows.
        b: The operand that has the columns (the weights, when one operand is constant).
        batch: In the output and both operands.
        rows: In the output and `a` only.
        columns: In the output and `b` only.
        reduction: Not in the output.
        window: Reduction axes that share a subscript of `a` with an output axis (kernel rows and columns).
    """

    a: Load
    b: Load
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    reduction: tuple[Axis, ...]
    window: tuple[Axis, ...]


def product(nest: Nest, dtypes: Mapping[str, DType] | None = None) -> tuple[Load, Load] | None:
    """The two factors of a sum of products of two loads; None for any other nest.

    A factor may be converted to the type of the sum: one of a narrow type or of bytes is. `dtypes`: of the tensors,
    for those who mean no conversions of other types.
    """
    match nest.reduce, nest.body:
        case "add", Apply("mul", (x, y)):
            a, b = _factor(x, dtypes), _factor(y, dtypes)
            return None if a is None or b is None else (a, b)
        case _:
            return None


def _factor(e: Expr, dtypes: Mapping[str, DType] | None) -> Load | None:
    match e:
        case Load():
            return e
        case Apply(fn, (Load(param, _) as load,)) if SCALARS[fn].rule == "cast":
            return load if dtypes is None or dtypes[param].narrow or dtypes[param] in BYTES else None
        case _:
            return None


def roles(nest: Nest, first: Load, second: Load) -> Roles:
    """The roles of a contraction's axes, with `first` as the row operand."""
    out, a, b = (frozenset(axes_in(*e)) for e in (nest.index, first.index, second.index))
    kept = [x for x in nest.axes if x in out]
    reduced = tuple(x for x in nest.axes if x not in out)
    return Roles(
        first,
        second,
        tuple(x for x in kept if x in a and x in b),
        tuple(x for x in kept if x not in b),
        tuple(x for x in kept if x in b and x not in a),
        reduced,
        tuple(x for x in reduced if x in window_axes(first.index)),
    )


def window_axes(index: tuple[Expr, ...]) -> frozenset[Axis]:
    """Axes that share a subscript with another axis: `oh*2+kh` has two."""
    return frozenset(a for i in index if len(found := axes_in(i)) > 1 for a in found)


def spatial_axes(nest: Nest) -> frozenset[Axis]:
    """Output axes over which a window slides: they share a subscript of some load with a reduction axis."""
    reduced = set(nest.reduction_axes)
    found: set[Axis] = set()
    for load in loads(nest.body):
        for i in load.index:
            inside = set(axes_in(i))
            if inside & reduced and inside - reduced:
                found |= inside - reduced
    return frozenset(found)
