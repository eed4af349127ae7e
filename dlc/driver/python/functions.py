"""Functions of numpy that compute: reductions, choices and products of traced arrays, each as numpy defines it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from dlc.driver.python.place import refused
from dlc.driver.python.registering import BOOL, I64, axes_of, common, several, traced_as
from dlc.driver.python.shapes import broadcast_to, ravel, reshape
from dlc.driver.python.traced import Traced, as_traced, as_type, made
from dlc.ops import reduce as r
from dlc.ops.elementwise import Where
from dlc.ops.index import GatherElements, Trilu
from dlc.ops.linear import Einsum
from dlc.ops.pointwise import broadcast

# ---- reductions


def _reduced(x: Any, op: Any, axis: Any, keepdims: bool) -> Traced:
    x = as_traced(x)
    axes = axes_of(x, axis)
    return made(op.__name__, op, x, axes=axes, keep=bool(keepdims)) if axes else x


def _summable(x: Any, dtype: Any) -> Traced:
    """Elements in the type in which numpy adds them."""
    x = as_traced(x)
    if dtype is None:
        kind, size = x.dtype.kind, x.dtype.itemsize
        dtype = np.int64 if kind == "b" or (kind == "i" and size < 8) else np.uint64 if kind == "u" else x.dtype
    return as_type(x, np.dtype(dtype))


@traced_as("sum")
def _sum(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Traced:
    return _reduced(_summable(a, dtype), r.ReduceSum, axis, keepdims)


@traced_as("prod")
def _prod(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Traced:
    return _reduced(_summable(a, dtype), r.ReduceProd, axis, keepdims)


@traced_as("mean", "average")
def _mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Traced:
    x = as_traced(a)
    x = as_type(x, np.dtype(dtype or (x.dtype if x.op.dtype.is_float else np.float64)))
    return _reduced(x, r.ReduceMean, axis, keepdims)


@traced_as("var")
def _var(a: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Traced:
    x = as_traced(a)
    x = as_type(x, np.dtype(dtype or (x.dtype if x.op.dtype.is_float else np.float64)))
    centred = x - _mean(x, axis, keepdims=True)
    count = math.prod(x.shape[d] for d in axes_of(x, axis))
    return _sum(centred * centred, axis, keepdims=keepdims) / (count - ddof)


@traced_as("std")
def _std(a: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Traced:
    return cast("Traced", np.sqrt(cast("Any", _var(a, axis, dtype, ddof, keepdims))))


def _extreme(op: Any, logic: Callable[..., Traced]) -> Callable[..., Traced]:
    def found(a: Any, axis: Any = None, keepdims: bool = False) -> Traced:
        x = as_traced(a)
        return logic(x, axis, keepdims) if x.dtype == BOOL else _reduced(x, op, axis, keepdims)

    return found


def _logic(op: Any) -> Callable[..., Traced]:
    def found(a: Any, axis: Any = None, keepdims: bool = False) -> Traced:
        x = as_traced(a)
        x = x if x.dtype == BOOL else x != 0
        return as_type(_reduced(as_type(x, np.dtype(np.int32)), op, axis, keepdims), BOOL)

    return found


for _names, _function in (
    (("any",), _logic(r.ReduceMax)),
    (("all",), _logic(r.ReduceMin)),
    (("max", "amax"), _extreme(r.ReduceMax, _logic(r.ReduceMax))),
    (("min", "amin"), _extreme(r.ReduceMin, _logic(r.ReduceMin))),
):
    traced_as(*_names)(_function)


def _place(op: Any) -> Callable[..., Traced]:
    def found(a: Any, axis: Any = None, keepdims: bool = False) -> Traced:
        x = as_traced(a)
        if axis is None:
            y = made(op.__name__, op, ravel(x), axis=0, keep=False)
            return reshape(y, (1,) * x.ndim) if keepdims else y
        return made(op.__name__, op, x, axis=axes_of(x, axis)[0], keep=bool(keepdims))

    return found


traced_as("argmax")(_place(r.ArgMax))
traced_as("argmin")(_place(r.ArgMin))


def _running(op: Any) -> Callable[..., Traced]:
    def found(a: Any, axis: Any = None, dtype: Any = None) -> Traced:
        x = _summable(a, dtype)
        x, axis = (ravel(x), 0) if axis is None else (x, axis)
        return made(op.__name__, op, x, axis=axes_of(x, axis)[0])

    return found


traced_as("cumsum")(_running(r.CumSum))
traced_as("cumprod")(_running(r.CumProd))

# ---- choices


@traced_as()
def _where(condition: Any, x: Any = None, y: Any = None) -> Traced:
    if x is None or y is None:
        help = "give all three: numpy.where(condition, a, b)"
        raise refused("traced-size", "numpy.where(condition) alone: how many elements it finds depends on values", help)
    from dlc.driver.python.ufuncs import _is_weak  # pyright: ignore[reportPrivateUsage]

    c = as_traced(condition)
    c = c if c.dtype == BOOL else c != 0
    of = np.result_type(*(v if _is_weak(v) else as_traced(v).dtype for v in (x, y)))
    a, b = (as_type(as_traced(v, of if _is_weak(v) else None), of) for v in (x, y))
    return made("where", Where, c, a, b)


@traced_as()
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Traced:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    x: Any = as_traced(a)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@traced_as()
def _take(a: Any, indices: Any, axis: Any = None) -> Traced:
    x, axis = (ravel(a), 0) if axis is None else (as_traced(a), axis)
    (d,) = axes_of(x, axis)
    return x[(*(slice(None),) * d, indices if isinstance(indices, Traced) else np.asarray(indices))]


@traced_as()
def _take_along_axis(arr: Any, indices: Any, axis: int = -1) -> Traced:
    x, i = as_traced(arr), as_type(as_traced(indices), I64)
    (d,) = axes_of(x, axis)
    to = broadcast(*(tuple(1 if k == d else n for k, n in enumerate(v.shape)) for v in (x, i)))
    x, i = (broadcast_to(v, tuple(v.shape[d] if k == d else n for k, n in enumerate(to))) for v in (x, i))
    return made("take_along_axis", GatherElements, x, i, axis=d)


def _triangle(upper: bool) -> Callable[..., Traced]:
    def found(m: Any, k: int = 0) -> Traced:
        return made("triangle", Trilu, m, upper=upper, k=k)

    return found


traced_as("triu")(_triangle(True))
traced_as("tril")(_triangle(False))


def _filled(value: Any) -> Callable[..., Traced]:
    def found(a: Any, dtype: Any = None, **options: Any) -> Traced:
        if options:
            raise refused("no-such-function", f"an array like another with {', '.join(options)} cannot be traced")
        x = as_traced(a)
        return broadcast_to(as_traced(np.asarray(value, dtype or x.dtype)), x.shape)

    return found


traced_as("zeros_like")(_filled(0))
traced_as("ones_like")(_filled(1))


@traced_as()
def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Traced:
    x = as_traced(a)
    of = np.dtype(dtype or x.dtype)
    return broadcast_to(as_type(as_traced(fill_value, None if isinstance(fill_value, Traced) else of), of), x.shape)


@traced_as("round", "around")
def _round(a: Any, decimals: int = 0) -> Any:
    return np.rint(as_traced(a) * 10.0**decimals) / 10.0**decimals if decimals else np.rint(as_traced(a))


# ---- products


@traced_as()
def _einsum(*operands: Any) -> Traced:
    equation, *arrays = operands
    if not isinstance(equation, str):
        raise refused("no-such-function", "numpy.einsum without an equation as its first argument cannot be traced")
    text = equation.replace(" ", "")
    return made("einsum", lambda *xs: Einsum(xs, equation=text), *common(arrays))


@traced_as()
def _dot(a: Any, b: Any) -> Any:
    x, y = as_traced(a), as_traced(b)
    if not x.ndim or not y.ndim:
        return x * y
    return x @ y if y.ndim <= 2 else _tensordot(x, y, ((-1,), (-2,)))


@traced_as()
def _inner(a: Any, b: Any) -> Any:
    x, y = as_traced(a), as_traced(b)
    return _tensordot(x, y, ((-1,), (-1,))) if x.ndim and y.ndim else x * y


@traced_as()
def _outer(a: Any, b: Any) -> Any:
    return reshape(a, (-1, 1)) * reshape(b, (1, -1))


@traced_as()
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Traced:
    x, y = common([a, b])
    left, right = ([*range(x.ndim - axes, x.ndim)], [*range(axes)]) if isinstance(axes, int) else axes
    pairs = [[axes_of(v, d)[0] for d in several(of)] for v, of in ((x, left), (y, right))]
    letters = "abcdefghijklmnopqrstuvwxyz"
    first = list(letters[: x.ndim])
    second = list(letters[x.ndim : x.ndim + y.ndim])
    for p, q in zip(*pairs, strict=True):
        second[q] = first[p]
    result = [c for d, c in enumerate(first) if d not in pairs[0]] + [
        c for d, c in enumerate(second) if d not in pairs[1]
    ]
    return _einsum(f"{''.join(first)},{''.join(second)}->{''.join(result)}", x, y)


@traced_as()
def _result_type(*values: Any) -> np.dtype[Any]:
    return np.result_type(*(v.dtype if isinstance(v, Traced) else v for v in values))
