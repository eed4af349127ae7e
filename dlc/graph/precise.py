"""Values of narrow floats are computed in f32 inside of an operator, and rounded once, where its result leaves it.

    y = layer_norm(x)          →   y = f16(layer_norm(f32(x)))              x, y: f16
    d = √(Σ x² / n)            →   d = f16(√(Σ f32(x)² / n))

A kernel rounds once by itself (`dlc.kernel.rounding`). What is made of several ops would round between them: the sum of
squares of a row of f16 overflows where its root does not, and a count of 70,000 is no f16 at all. So whoever makes ops
of one operator makes them a second time, of operands in f32, where the first ones round on the way: the expansion of an
op, its `vjp`, the import rules of frontends. Values between two operators of a model are of the model's own type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from dlc.base.types import DType, Type
from dlc.graph.op import Op
from dlc.graph.pointwise import Cast
from dlc.graph.structure import Call, Constant, Input, Item, Splat
from dlc.graph.walk import toposort
from dlc.kernel.expr import Apply, Expr, Load, walk

Maker = Callable[[Sequence["Op | None"]], "Sequence[Op | None]"]
"""Operands → the results of one operator on them."""


def is_narrow(op: Op) -> bool:
    """Whether an op has a result of a narrow float."""
    return any(t.dtype.is_float and t.dtype.narrow for t in op.types)


def widened(x: Op) -> Op:
    """A value of a narrow float in the type that it is computed with; any other one as it is."""
    if len(x.types) != 1 or not is_narrow(x):
        return x
    if isinstance(x, Splat):
        return Splat(float(x.dtype.numpy.type(x.value)), Type(x.dtype.compute, x.shape))
    return Cast(x, to=x.dtype.compute)


def unrounded_value(x: Op) -> Op:
    """A value of a narrow float as it was before it was rounded, where it was computed in f32; else as `widened`."""
    match x:
        case Cast(x=source) if is_narrow(x) and source.dtype is x.dtype.compute:
            return source
        case _:
            return widened(x)


def rounded(x: Op, to: DType) -> Op:
    """A value rounded to a type: without a conversion there and back."""
    if x.dtype == to:
        return x
    match x:
        case Cast(x=source) if source.dtype == to and to.compute is x.dtype:
            return source
        case Splat(value=value):
            return Splat(value, Type(to, x.shape))
        case _:
            return Cast(x, to=to)


def computed_once(results: Sequence[Op | None], operands: Iterable[Op | None], again: Maker) -> Sequence[Op | None]:
    """The results of one operator, computed without rounding on the way.

    Args:
        results: What the operator gives for its operands; None where it gives nothing.
        operands: Its operands, None where left out. What is before them is not looked at.
        again: Makes the results for other operands, of which those of narrow floats are f32.

    Returns:
        `results` themselves where none of their steps reads a rounded value of another; else what `again` makes of
        operands in f32, each rounded to the type of the result that it stands for.
    """
    given = tuple(operands)
    whole = tuple(r for r in results if r is not None)
    if not rounds_inside(whole, [x for x in given if x is not None]):
        return results
    wide = again([None if x is None else widened(x) for x in given])
    found = tuple(_as(new, old) for new, old in zip(wide, results, strict=True))
    same = all(n is None or o is None or n.types == o.types for n, o in zip(found, results, strict=True))
    return found if same else results


def _as(new: Op | None, old: Op | None) -> Op | None:
    if new is None or old is None or len(old.types) != 1 or not is_narrow(old):
        return new
    return rounded(new, old.dtype) if new.dtype in (old.dtype, old.dtype.compute) else new


def rounds_inside(results: Sequence[Op], operands: Sequence[Op]) -> bool:
    """Whether a step between operands and results computes with what another one rounded to a narrow float."""
    if not any(map(is_narrow, operands)):
        return False
    inexact: set[str] = set()
    for op in toposort(results, operands):
        if any(x.digest in inexact for x in op.operands):
            if not is_movement(op):
                return True
            inexact.add(op.digest)
        elif is_narrow(op) and not is_movement(op):
            inexact.add(op.digest)
    return False


def is_movement(op: Op) -> bool:
    """Whether an op only moves and chooses elements: what it gives for rounded values is exact."""
    match op:
        case Splat(value=value, of=of):
            return not of.dtype.narrow or (math.isfinite(value) and float(of.dtype.numpy.type(value)) == value)
        case Input() | Constant() | Item():
            return True
        case _:
            pass
    if op.body_names or op.expansion is not None or (type(op).define is Op.define and not isinstance(op, Call)):
        return False
    return all(n.reduce not in _SUMS and not _computes(n.body) for n in op.kernel.nests)


_SUMS = ("add", "mul")
_CHOOSING = ("min", "max")


def _computes(e: Expr) -> bool:
    """Whether a value may be none of the elements that it is made of, or is chosen by what they are."""
    match e:
        case Apply("select", (condition, *values)):
            return any(isinstance(x, Load) for x in walk(condition)) or any(map(_computes, values))
        case Apply(fn, args):
            return fn not in _CHOOSING or any(map(_computes, args))
        case _:
            return False


def expanded(op: Op, whole: Op) -> Op:
    """The expansion of an op on narrow floats, `whole`, without rounding between its parts."""

    def again(operands: Sequence[Op | None]) -> Sequence[Op | None]:
        return (op.with_operands([x for x in operands if x is not None]).expansion,)

    (found,) = computed_once((whole,), op.operands, again)
    assert found is not None
    return found


def precise(op: Op) -> Op:
    """An op on operands in f32, rounded: the value of the op itself, in a form whose parts a gradient can share."""
    if len(op.types) != 1 or not is_narrow(op):
        return op
    return rounded(op.with_operands([widened(x) for x in op.operands]), op.dtype)


Op.computed_once = staticmethod(expanded)
"""Here, because files form no circle: the conversion is an op itself."""
