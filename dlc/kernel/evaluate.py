"""Vectorised numpy interpreter of nests: the reference semantics of every kernel.

It materialises the iteration space in slabs along the outermost axis, so it is meant for tests, folding and small
kernels; ops override `evaluate` where numpy has the whole computation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dlc.base.budget import charge_elements, limit
from dlc.base.types import Array, DType, in_compute_type
from dlc.base.uses import NUMPY, used
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import LITERAL_DTYPES, Nest, converted_dtype
from dlc.kernel.scalar import SCALARS, combine_at, combine_runs, note_library, result_dtype

# Points of the iteration space that are held at once: 2^20 points of a few 8-byte temporaries are some tens of MB.
SLAB_POINTS = 1 << 20


Functions = Mapping[str, Callable[..., Any]]
"""Name of a scalar function → its value on arrays."""
_ROUNDING: Final = ("add", "mul")
"""Reductions that depend on their order."""
_PLAIN: Final[Functions] = {name: scalar.value for name, scalar in SCALARS.items()}


class Arithmetic:
    """What numbers are: numpy's of each element type. Who derives from it says otherwise.

    `functions` compute what expressions apply, for those who want only that computed otherwise.
    """

    def __init__(self, functions: Functions = _PLAIN) -> None:
        """Numbers of numpy."""
        self.functions = functions

    def numpy(self, dtype: DType) -> Any:
        """The numpy type of arrays that hold elements of a type."""
        return dtype.numpy

    def literal(self, value: bool | int | float, dtype: DType) -> Array:
        """A literal; integers wrap as all integer data does (`x - 1` of unsigned data is written `x + -1`)."""
        if dtype.is_integer and not isinstance(value, float):
            return np.asarray(dtype.wrapped(int(value)), dtype.numpy)
        return np.asarray(value, dtype.numpy)

    def applied(self, fn: str, dtype: DType | None, *values: Array) -> Array:
        """A scalar function of values that have the type `dtype` (None: not known, of literals only)."""
        del dtype
        note_library(fn, values)
        return np.asarray(self.functions[fn](*values))

    def kept(self, value: Array, dtype: DType) -> Array:
        """A value as a variable or tensor of a type holds it."""
        return value.astype(dtype.numpy, copy=False)

    def stored(self, value: Array, to: DType) -> Array:
        """A value as memory of a narrow type holds it."""
        return SCALARS[to.name].value(value)

    def loaded(self, value: Array, dtype: DType) -> Array:
        """What memory of a narrow type holds, as a value of the type that is computed with."""
        return in_compute_type(value).astype(dtype.numpy, copy=False)

    def combined_at(self, fn: str, dtype: DType, out: Array, index: tuple[Array, ...], value: Array) -> None:
        """out[index] = fn(out[index], value), for every index in turn."""
        del dtype
        if fn in _ROUNDING and out.dtype.kind not in "biu":
            used(NUMPY)  # in which order it adds
        combine_at(fn, out, index, value)

    def combined_runs(self, fn: str, dtype: DType, values: Array, starts: Array) -> Array:
        """What each run of rows that begins at one of `starts` is combined into."""
        del dtype
        if fn in _ROUNDING and values.dtype.kind not in "biu":
            used(NUMPY)
        return combine_runs(fn, values, starts)


PLAIN: Final = Arithmetic()


def run_kernel(kernel: Kernel, args: Sequence[Array], functions: Functions = _PLAIN) -> tuple[Array, ...]:
    """The results of a kernel on arrays of its parameters' types.

    `functions` compute what bodies apply, for those who want it computed otherwise; reductions are numpy's.
    """
    numbers = Arithmetic(functions)
    pairs = zip(kernel.params, args, strict=True)
    env = {p.name: np.asarray(a, p.dtype.numpy if p.dtype.narrow else None) for p, a in pairs}
    charge_elements(sum(nest.points for nest in kernel.nests), "what a kernel gives")
    for t in (*kernel.results, *kernel.locals):
        limit("memory", math.prod(t.shape) * t.dtype.numpy.itemsize, "an array of a kernel")
        env[t.name] = np.full(t.shape, kernel.start_of(t.name), t.dtype.numpy)
    with np.errstate(all="ignore"):
        for nest in kernel.nests:
            run_nest(kernel, nest, env, numbers)
    return tuple(env[r.name] for r in kernel.results)


def values_over(e: Expr, grid: Mapping[Axis, Array]) -> Array:
    """An expression that loads nothing, where axes have the values of these arrays, which broadcast."""
    return np.asarray(Points(_NO_TENSORS, {}, grid).value(e, None))


_NO_TENSORS = Kernel((), (), (), ())


def run_nest(
    kernel: Kernel,
    nest: Nest,
    env: Mapping[str, Array],
    numbers: Arithmetic = PLAIN,
    chosen: Mapping[Axis, Array] | None = None,
) -> None:
    """Run one nest on tensors by name; of axes that have `chosen` values, only these."""
    for points, shape in slabs(kernel, nest, env, numbers, chosen or {}):
        _run_slab(points, nest, shape)


def slabs(
    kernel: Kernel, nest: Nest, env: Mapping[str, Array], numbers: Arithmetic, chosen: Mapping[Axis, Array]
) -> Iterator[tuple[Points, tuple[int, ...]]]:
    """The points of a nest in parts that are small enough to be held at once, with their shapes."""
    rank = len(nest.axes)
    if rank == 0:
        yield Points(kernel, env, {}, numbers), ()
        return
    values = [chosen[a] if a in chosen else np.arange(a.extent) for a in nest.axes]
    count = math.prod(len(v) for v in values)
    if count == 0:
        return
    outer, *inner = nest.axes
    step = max(1, SLAB_POINTS // (count // len(values[0])))
    fixed = {a: values[p].reshape([-1 if k == p else 1 for k in range(rank)]) for p, a in enumerate(inner, 1)}
    for start in range(0, len(values[0]), step):
        part = values[0][start : start + step]
        grid = {outer: part.reshape([-1] + [1] * (rank - 1)), **fixed}
        yield Points(kernel, env, grid, numbers), (len(part), *(len(v) for v in values[1:]))


def _run_slab(interpreter: Points, nest: Nest, shape: tuple[int, ...]) -> None:
    out, dtype = interpreter.env[nest.out], interpreter.kernel.tensors[nest.out].dtype
    value = np.broadcast_to(interpreter.value(nest.body, dtype), shape)
    index = tuple(np.broadcast_to(interpreter.index(i), shape) for i in nest.index)
    if nest.where is not None:
        keep = np.broadcast_to(interpreter.value(nest.where, None), shape)
        value, index = value[keep], tuple(i[keep] for i in index)
    if not index:  # a scalar result: ufunc.at wants subscripts
        out, index = out.reshape(1), (np.zeros(value.shape, np.int64),)
    if nest.reduce is None:
        out[index] = value
    else:
        interpreter.numbers.combined_at(nest.reduce, dtype, out, index, value)


class Interpreter:
    """Evaluates expressions; who derives from it says what an axis or a load is, and what types there are."""

    numbers: Arithmetic = PLAIN

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
                return self.numbers.literal(v, like or LITERAL_DTYPES[type(v)])
            case Apply(fn, args):
                return self.applied(fn, args, like)
            case _:
                return self.leaf(e)

    def applied(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> Array:
        """The value of a function."""
        dtypes = self.literal_dtypes(fn, args, like)
        if SCALARS[fn].rule == "select":
            return self.select(args, dtypes[-1])
        operand = dtypes[0] if dtypes[0] is not None else self.dtype(args[0])
        return self.numbers.applied(fn, operand, *map(self.value, args, dtypes))

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
        self, kernel: Kernel, env: Mapping[str, Array], grid: Mapping[Axis, Array], numbers: Arithmetic = PLAIN
    ) -> None:
        self.kernel, self.env, self._grid, self.numbers = kernel, env, grid, numbers
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
