"""Integers of a graph that follow from the sizes of dimensions: small values known element by element as extents.

    Shape → Gather → Mul → Concat → Reshape        the operand of Reshape is (batch, 4*seq)

An op needs to declare nothing for it: its kernel says what it computes, and is evaluated on extents point by point.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np

from dlc.base.extents import Undecided, bounds, is_extent, larger, smaller
from dlc.base.types import Array, i64
from dlc.graph.op import Op
from dlc.graph.structure import Input, Item
from dlc.graph.walk import toposort
from dlc.kernel.expr import SIZE, Apply, Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.ops.sizes import Size, Sizes

MOST_ELEMENTS: Final = 64
"""Of one value that is followed: shapes and what they are made of are short."""
MOST_POINTS: Final = 4096

Extents: TypeAlias = Array
"""Elements that are numbers, truth values or symbolic dimensions (an array of objects)."""


class ShapeValues:
    """What is known of the values of a graph.

    Args:
        constant: The value of an op that depends on no input, where it is small enough to be computed.
    """

    def __init__(self, constant: Callable[[Op], Array | None]) -> None:
        self._constant = constant
        self._known: dict[str, Extents | None] = {}

    def extents(self, op: Op) -> Extents | None:
        """The elements of a value; None where one of them is no function of the sizes alone, or not known."""
        if op.digest not in self._known:
            for x in toposort((op,)):
                if x.digest not in self._known:
                    self._known[x.digest] = self._found(x)
        return self._known[op.digest]

    def _found(self, op: Op) -> Extents | None:
        if isinstance(op, (Input, Item)) or len(op.types) != 1:
            return None
        if isinstance(op, Sizes):
            return _objects(list(op.dims), (len(op.dims),))
        if isinstance(op, Size) and op.to is i64:
            return _objects([op.dim], ())
        if op.dtype.is_float or op.type.is_open or op.type.capacity > MOST_ELEMENTS:
            return None
        if (value := self._constant(op)) is not None:
            return _objects(value.reshape(-1).tolist(), value.shape)
        args = [self._known.get(x.digest) for x in op.operands]
        given = [a for a in args if a is not None]
        if len(given) < len(args):
            return None
        try:
            return _applied(op, given)
        except Undecided:
            return None

    def numbers(self, op: Op) -> tuple[int, ...] | None:
        """The elements in order, as integers and symbolic dimensions."""
        found = self.extents(op)
        return None if found is None else tuple(found.reshape(-1).tolist())


def _objects(values: Sequence[Any], shape: tuple[int, ...]) -> Extents:
    out = np.empty(len(values), object)
    for k, v in enumerate(values):
        out[k] = v
    return out.reshape(shape)


def _applied(op: Op, args: Sequence[Extents]) -> Extents:
    """An op on extents; raises Undecided where a condition or a function is not known."""
    if op.expansion is None:
        return _run(op.kernel, args)
    env = {x.digest: a for x, a in zip(op.operands, args, strict=True)}
    for part in toposort((op.expansion,), op.operands):
        if part.digest not in env:
            if part.dtype.is_float or part.type.is_open:
                raise Undecided(f"{part.text_name} is no integer")
            env[part.digest] = _applied(part, [env[x.digest] for x in part.operands])
    return env[op.expansion.digest]


def _run(kernel: Kernel, args: Sequence[Extents]) -> Extents:
    env: dict[str, Extents] = {p.name: a for p, a in zip(kernel.params, args, strict=True)}
    for t in (*kernel.results, *kernel.locals):
        env[t.name] = np.full(t.shape, kernel.start_of(t.name), object)
    for nest in kernel.nests:
        if nest.points > MOST_POINTS:
            raise Undecided("too many points")
        for place in product(*(range(a.extent) for a in nest.axes)):
            _point(nest, dict(zip(nest.axes, place, strict=True)), env)
    return env[kernel.results[0].name]


def _point(nest: Nest, at: Mapping[Axis, int], env: Mapping[str, Extents]) -> None:
    if nest.where is not None and not _value(nest.where, at, env):
        return
    index = tuple(int(_value(i, at, env)) for i in nest.index)
    value = _value(nest.body, at, env)
    if nest.reduce is not None:
        value = _FUNCTIONS[nest.reduce](env[nest.out][index], value)
    env[nest.out][index] = value


def _value(e: Expr, at: Mapping[Axis, int], env: Mapping[str, Extents]) -> Any:
    match e:
        case Const(v):
            return v
        case Axis():
            return at[e]
        case Load(param, index):
            if param.startswith(SIZE):
                raise Undecided("a size inside of a kernel")
            places = [int(_value(i, at, env)) for i in index]
            shape = env[param].shape
            if any(not 0 <= p < n for p, n in zip(places, shape, strict=True)):
                places = [min(max(p, 0), n - 1) for p, n in zip(places, shape, strict=True)]
            return env[param][tuple(places)]
        case Apply("select", (condition, then, otherwise)):
            return _value(then if _value(condition, at, env) else otherwise, at, env)
        case Apply(fn, args):
            if fn not in _FUNCTIONS:
                raise Undecided(f"{fn} of sizes")
            return _FUNCTIONS[fn](*(_value(a, at, env) for a in args))
        case _:
            raise AssertionError(e)


def _equal(a: Any, b: Any) -> bool:
    """Equality that is certain either way."""
    if a == b:
        return True
    low, high = bounds(a - b)
    if low > 0 or high < 0:
        return False
    raise Undecided(f"whether {a} is {b}")


def _quotient(a: Any, b: Any) -> Any:
    """Division towards zero, as integers have it: that of the floor where both are not negative."""
    if a < 0 or b <= 0:
        if isinstance(a, int) and isinstance(b, int) and b:
            return int(a / b) if abs(a) < 1 << 52 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        raise Undecided(f"{a} divided by {b}")
    return a // b


def _remainder(a: Any, b: Any) -> Any:
    return a - _quotient(a, b) * b


def _size(a: Any) -> Any:
    return larger(a, -a)


def _different(a: Any, b: Any) -> bool:
    return not _equal(a, b)


def _same(a: Any) -> Any:
    return int(a) if isinstance(a, bool) else a


def _wide(a: Any) -> Any:
    if not is_extent(a) and not isinstance(a, bool):
        raise Undecided(f"{a} as an integer")
    return _same(a)


_OPERATORS: Any = operator
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "add": _OPERATORS.add,
    "sub": _OPERATORS.sub,
    "mul": _OPERATORS.mul,
    "neg": _OPERATORS.neg,
    "truncdiv": _quotient,
    "truncmod": _remainder,
    "floordiv": _OPERATORS.floordiv,
    "mod": _OPERATORS.mod,
    "min": smaller,
    "max": larger,
    "abs": _size,
    "lt": _OPERATORS.lt,
    "le": _OPERATORS.le,
    "gt": _OPERATORS.gt,
    "ge": _OPERATORS.ge,
    "eq": _equal,
    "ne": _different,
    "and": _OPERATORS.and_,
    "or": _OPERATORS.or_,
    "not": _OPERATORS.not_,
    "bool": bool,
    "i64": _wide,
    "i32": _wide,
}
"""Scalar functions of extents. Sizes fit 32 bits where a model says so: it could not count its elements otherwise."""
