"""The points of a nest by enumeration, with arithmetic that is independent of the interpreter."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.nest import Nest

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floordiv": np.floor_divide,
    **{name: getattr(np, fn) for name, fn in (("min", "minimum"), ("max", "maximum"))},
    **{name: getattr(np, f"logical_{name}") for name in ("and", "or", "not")},
    **{name: getattr(op, name) for name in ("add", "sub", "mul", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")},
}


def value(e: Expr, at: Mapping[Axis, Any]) -> Any:
    """An index expression or guard, where axes have these values (arrays of 64-bit integers)."""
    match e:
        case Const(v):
            return np.asarray(v)
        case Axis():
            return at[e]
        case Apply(fn, args):
            return _FUNCTIONS[fn](*(value(a, at) for a in args))
        case _:
            raise AssertionError(e)


def points(nest: Nest) -> list[tuple[int, ...]]:
    """What is written and what the body's only load reads, in one row for every point; sorted, repeated if repeated."""
    assert isinstance(nest.body, Load)
    shape = tuple(a.extent for a in nest.axes)
    count = math.prod(shape)
    at = dict(zip(nest.axes, np.indices(shape).reshape(len(shape), count), strict=True))
    keep = np.ones(count, bool) if nest.where is None else np.broadcast_to(value(nest.where, at), count)
    columns = [np.broadcast_to(value(e, at), count)[keep].tolist() for e in (*nest.index, *nest.body.index)]
    return sorted(zip(*columns, strict=True)) if columns else [()] * int(keep.sum())
