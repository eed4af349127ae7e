"""What a target needs for nests: scalar functions, and the types of the numbers between tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlc.base.types import DType, bool_, i64
from dlc.kernel.expr import SIZE, Apply, Axis, Expr, Load, walk
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import result_dtype


def functions_of(nests: Iterable[Nest]) -> frozenset[str]:
    """The scalar functions that nests apply, those of reductions included."""
    nests = tuple(nests)
    applied = {e.fn for nest in nests for part in _parts(nest) for e in walk(part) if isinstance(e, Apply)}
    return frozenset(applied | {nest.reduce for nest in nests if nest.reduce is not None})


def numbers_of(nests: Iterable[Nest], tensors: Mapping[str, DType]) -> frozenset[DType]:
    """The types of what functions give, but for conditions and the arithmetic of subscripts."""
    found: set[DType] = set()
    for nest in nests:
        for part in _parts(nest):
            _collect(part, tensors, found)
    return frozenset(found)


def _parts(nest: Nest) -> tuple[Expr, ...]:
    return (*nest.index, nest.body, *(() if nest.where is None else (nest.where,)))


def _collect(e: Expr, tensors: Mapping[str, DType], found: set[DType]) -> tuple[DType | None, bool]:
    """(type of an expression, whether an element decides it); the types of functions in it are added to `found`."""
    match e:
        case Apply(fn, args):
            inside = [_collect(a, tensors, found) for a in args]
            dtype, decided = result_dtype(fn, tuple(d for d, _ in inside)), any(own for _, own in inside)
            if dtype is not None and dtype is not bool_ and (decided or dtype is not i64):
                found.add(dtype)
            return dtype, decided
        case Load(param, index):
            for subscript in index:
                _collect(subscript, tensors, found)
            return (i64, False) if param.startswith(SIZE) else (tensors[param], True)
        case Axis():
            return i64, False
        case _:
            return None, False
