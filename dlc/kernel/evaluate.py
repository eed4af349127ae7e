"""Vectorised numpy interpreter of nests: the reference semantics of every kernel.

It materialises the iteration space in slabs along the outermost axis, so it is meant for tests, folding and small
kernels; ops override `evaluate` where numpy has the whole computation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dlc.base.types import Array, DType
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import LITERAL_DTYPES, Nest, converted_dtype
from dlc.kernel.scalar import SCALARS, combine_at, result_dtype

# Points of the iteration space that are held at once: 2^20 points of a few 8-byte temporaries are some tens of MB.
SLAB_POINTS = 1 << 20


Functions = Mapping[str, Callable[..., Any]]
"""Name of a scalar function → its value on arrays."""
_PLAIN: Final[Functions] = {name: scalar.value for name, scalar in SCALARS.items()}


def run_kernel(kernel: Kernel, args: Sequence[Array], functions: Functions = _PLAIN) -> tuple[Array, ...]:
    """The results of a kernel on arrays of its parameters' types.

    `functions` compute what bodies apply, for those who want it computed otherwise; reductions are numpy's.
    """
    pairs = zip(kernel.params, args, strict=True)
    env = {p.name: np.asarray(a, p.dtype.numpy if p.dtype.narrow else None) for p, a in pairs}
    for t in (*kernel.results, *kernel.locals):
        env[t.name] = np.full(t.shape, kernel.start_of(t.name), t.dtype.numpy)
    with np.errstate(all="ignore"):
        for nest in kernel.nests:
            _run_nest(kernel, nest, env, functions)
    return tuple(env[r.name] for r in kernel.results)


def values_over(e: Expr, grid: Mapping[Axis, Array]) -> Array:
    """An expression that loads nothing, where axes have the values of these arrays, which broadcast."""
    return np.asarray(Points(_NO_TENSORS, {}, grid, _PLAIN).value(e, None))


_NO_TENSORS = Kernel((), (), (), ())


def _run_nest(kernel: Kernel, nest: Nest, env: Mapping[str, Array], functions: Functions) -> None:
    if nest.points == 0:
        return
    if not nest.axes:
        _run_slab(Points(kernel, env, {}, functions), nest, ())
        return
    outer, *inner = nest.axes
    per_outer = max(1, nest.points // outer.extent)
    step = max(1, SLAB_POINTS // per_outer)
    rank = len(nest.axes)
    fixed: dict[Axis, Array] = {
        a: np.arange(a.extent).reshape([-1 if k == p else 1 for k in range(rank)]) for p, a in enumerate(inner, 1)
    }
    for start in range(0, outer.extent, step):
        stop = min(start + step, outer.extent)
        grid = {outer: np.arange(start, stop).reshape([-1] + [1] * (rank - 1)), **fixed}
        shape = (stop - start, *(a.extent for a in inner))
        _run_slab(Points(kernel, env, grid, functions), nest, shape)


def _run_slab(interpreter: Points, nest: Nest, shape: tuple[int, ...]) -> None:
    out = interpreter.env[nest.out]
    value = np.broadcast_to(interpreter.value(nest.body, interpreter.kernel.tensors[nest.out].dtype), shape)
    index = tuple(np.broadcast_to(interpreter.index(i), shape) for i in nest.index)
    if nest.where is not None:
        keep = np.broadcast_to(interpreter.value(nest.where, None), shape)
        value, index = value[keep], tuple(i[keep] for i in index)
    if not index:  # a scalar result: ufunc.at wants subscripts
        out, index = out.reshape(1), (np.zeros(value.shape, np.int64),)
    if nest.reduce is None:
        out[index] = value
    else:
        combine_at(nest.reduce, out, index, value)


def _literal(value: bool | int | float, dtype: DType) -> Array:
    """A literal; integers wrap as all integer data does (`x - 1` of unsigned data is written `x + -1`)."""
    if dtype.is_integer and not isinstance(value, float):
        return np.asarray(dtype.wrapped(int(value)), dtype.numpy)
    return np.asarray(value, dtype.numpy)


class Interpreter:
    """Evaluates expressions; who derives from it says what an axis or a load is, and what types there are."""

    functions: Functions = _PLAIN

    def leaf(self, e: Expr) -> Array:
        """The value of what is neither a literal nor an applied function."""
        raise NotImplementedError

    def dtype(self, e: Expr) -> DType | None:
        """The type of an expression; None for a literal."""
        raise NotImplementedError

    def value(self, e: Expr, like: DType | None) -> Array:
        """The value; a literal takes the type `like` (that of its neighbours)."""
        match e:
            case Const(v):
                return _literal(v, like or LITERAL_DTYPES[type(v)])
            case Apply(fn, args):
                return self.applied(fn, args, like)
            case _:
                return self.leaf(e)

    def applied(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> Array:
        """The value of a function."""
        dtypes = self.literal_dtypes(fn, args, like)
        if SCALARS[fn].rule == "select":
            return self.select(args, dtypes[-1])
        return np.asarray(self.functions[fn](*map(self.value, args, dtypes)))

    def literal_dtypes(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> tuple[DType | None, ...]:
        """What a literal would be in the place of each argument of a function."""
        scalar = SCALARS[fn]
        if scalar.to is not None:
            (x,) = args
            return (converted_dtype(x.value, scalar.to) if isinstance(x, Const) else None,)
        if scalar.rule == "select":
            inner = self._common(args[1:]) or like
            return None, inner, inner
        return (self._common(args) or (None if scalar.rule == "bool" else like),) * len(args)

    def select(self, args: tuple[Expr, ...], like: DType | None) -> Array:
        """The second or third argument, as the first says."""
        condition, then, otherwise = args
        return np.where(self.value(condition, None), self.value(then, like), self.value(otherwise, like))

    def _common(self, args: Sequence[Expr]) -> DType | None:
        return next((d for a in args if (d := self.dtype(a)) is not None), None)


class Points(Interpreter):
    """The points of one slab. Indices outside a tensor are clipped: only guarded-off points have them."""

    def __init__(
        self, kernel: Kernel, env: Mapping[str, Array], grid: Mapping[Axis, Array], functions: Functions = _PLAIN
    ) -> None:
        self.kernel, self.env, self._grid, self.functions = kernel, env, grid, functions
        self._dtypes: dict[int, DType | None] = {}  # by identity: the expressions outlive this

    def index(self, e: Expr) -> Array:
        """A subscript, as i64."""
        return np.asarray(self.value(e, None)).astype(np.int64, copy=False)

    def leaf(self, e: Expr) -> Array:
        match e:
            case Axis():
                return self._grid[e]
            case Load(param, index):
                tensor = self.env[param]
                if not tensor.size:  # every load of it is guarded off
                    return np.zeros((), tensor.dtype)
                where = tuple(
                    np.clip(self.index(i), 0, max(d - 1, 0)) for i, d in zip(index, tensor.shape, strict=True)
                )
                return tensor[where]
            case _:
                raise AssertionError(e)

    def dtype(self, e: Expr) -> DType | None:
        """Type of an expression, found once: every expression around it asks."""
        if not isinstance(e, Apply):
            return self.kernel.dtype_of(e)
        if id(e) not in self._dtypes:
            self._dtypes[id(e)] = result_dtype(e.fn, tuple([self.dtype(a) for a in e.args]))
        return self._dtypes[id(e)]
