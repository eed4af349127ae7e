"""Where integers of a graph come from: kernels evaluated on `Traced` values instead of numbers.

An op needs to declare nothing for it: its kernel says what it moves and computes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlc.base.types import Array, DType
from dlc.graph.evaluate import is_constant
from dlc.graph.op import Op
from dlc.graph.pieces import UNKNOWN, Traced, Value, apply_traced, traced
from dlc.graph.structure import Input, Item
from dlc.graph.walk import evaluate_ops
from dlc.kernel.evaluate import Points
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS

MOST_ELEMENTS = 1 << 22
"""Of a value that is traced: 32 MB for each array of its elements."""


class Tracer:
    """The values of ops, each traced once."""

    def __init__(self) -> None:
        self._values: dict[str, Value | None] = {}
        self._constant: dict[str, bool] = {}
        self._first: dict[str, int] = {}
        self._next = 0

    def first(self, i: Input) -> int:
        """The number of an input's first element among those of all inputs."""
        if i.digest not in self._first:
            self._first[i.digest] = self._next
            self._next += i.type.capacity
        return self._first[i.digest]

    @property
    def inputs(self) -> Mapping[str, int]:
        """Digest of an input that has been met → the number of its first element."""
        return self._first

    def value(self, op: Op) -> Value | None:
        """What is known of an op; None: nothing. Never recurses."""
        stack = [op]
        while stack:
            now = stack[-1]
            if now.digest in self._values:
                stack.pop()
                continue
            before = self._before(now)
            missing = [x for x in before if x.digest not in self._values]
            if missing:
                stack += missing
                continue
            self._values[now.digest] = self._found(now, [self._values[x.digest] for x in before])
            stack.pop()
        return self._values[op.digest]

    def _before(self, op: Op) -> tuple[Op, ...]:
        """What the value depends on, as far as it is looked at."""
        if not _is_traced(op) or isinstance(op, Input) or is_constant(op, self._constant):
            return ()
        return op.operands if op.expansion is None else (op.expansion,)

    def _found(self, op: Op, args: list[Value | None]) -> Value | None:
        if not _is_traced(op):
            return None
        if isinstance(op, Input):
            if not op.dtype.is_integer:
                return None
            return Traced.elements(self.first(op) + np.arange(op.type.capacity).reshape(op.type.room))
        if is_constant(op, self._constant):
            return np.asarray(evaluate_ops((op,), {})[0])
        if op.expansion is not None:
            return args[0]
        if all(a is None for a in args) or isinstance(op, Item):
            return None
        return run_traced(op.kernel, args)


def _is_traced(op: Op) -> bool:
    return len(op.types) == 1 and not op.dtype.is_float and op.type.capacity <= MOST_ELEMENTS


class _Unknown(Exception):
    """A subscript, or a condition for an element to be written, is not known."""


def run_traced(kernel: Kernel, args: list[Value | None]) -> Value | None:
    """The single result of a kernel on values of its parameters; None: nothing is known of it."""
    if len(kernel.results) != 1 or any(n.reduce is not None or n.points > MOST_ELEMENTS for n in kernel.nests):
        return None
    sizes = [None] * (len(kernel.params) - len(args))
    env: dict[str, Value | None] = {p.name: a for p, a in zip(kernel.params, (*args, *sizes), strict=True)}
    for t in (*kernel.results, *kernel.locals):
        env[t.name] = None
    try:
        with np.errstate(all="ignore"):
            for nest in kernel.nests:
                if nest.points:
                    env[nest.out] = _nest(kernel, nest, env)
    except _Unknown:
        return None
    return env[kernel.results[0].name]


def _nest(kernel: Kernel, nest: Nest, env: Mapping[str, Value | None]) -> Traced:
    shape = tuple(a.extent for a in nest.axes)
    rank = len(shape)
    grid = {a: np.arange(a.extent).reshape([-1 if k == p else 1 for k in range(rank)]) for p, a in enumerate(nest.axes)}
    inside = _Inside(kernel, env, grid)
    out = kernel.tensors[nest.out]
    value = traced(inside.traced(nest.body, out.dtype))
    if nest.where is None and nest.index == nest.axes and shape == out.shape:
        return _broadcast(value, shape)
    index = tuple(np.broadcast_to(inside.index(i), shape) for i in nest.index)
    every = tuple(np.broadcast_to(g, shape) for g in grid.values())
    if rank:
        value = _broadcast(value, shape).at(every)
    if nest.where is not None:
        keep = np.broadcast_to(inside.value(nest.where, None), shape)
        value, index = value.at((keep,)) if rank else value, tuple(i[keep] for i in index)
        if not rank and not keep:
            return _start(kernel, nest.out, env)
    return value.placed(_start(kernel, nest.out, env), index)


def _start(kernel: Kernel, name: str, env: Mapping[str, Value | None]) -> Traced:
    """What a result or local holds before a nest writes to it."""
    held = env[name]
    if held is not None:
        return traced(held)
    t = kernel.tensors[name]
    return Traced.constant(np.full(t.shape, kernel.start_of(name), t.dtype.numpy))


def _broadcast(value: Traced, shape: tuple[int, ...]) -> Traced:
    return Traced(np.broadcast_to(value.source, shape), value.pieces)


class _Inside(Points):
    """Evaluates expressions whose loads may be traced; subscripts and guards have to be numbers."""

    def __init__(self, kernel: Kernel, env: Mapping[str, Value | None], grid: Mapping[Axis, Array]) -> None:
        known = {name: v for name, v in env.items() if v is not None and not isinstance(v, Traced)}
        super().__init__(kernel, known, grid)
        self._held = env

    def value(self, e: Expr, like: DType | None) -> Array:
        found = self.traced(e, like)
        if isinstance(found, Traced):
            raise _Unknown
        return found

    def traced(self, e: Expr, like: DType | None) -> Value:
        """The value, or where it comes from."""
        match e:
            case Load(param, index) if not isinstance(held := self._held[param], np.ndarray):
                return self._load(param, index, held)
            case Apply(fn, args):
                parts = [self.traced(a, of) for a, of in zip(args, self.literal_dtypes(fn, args, like), strict=True)]
                known = [p for p in parts if not isinstance(p, Traced)]
                return np.asarray(SCALARS[fn].value(*known)) if len(known) == len(parts) else apply_traced(fn, parts)
            case Const() | Axis() | Load():
                return super().value(e, like)
            case _:
                raise AssertionError(e)

    def _load(self, param: str, index: tuple[Expr, ...], held: Value | None) -> Traced:
        places = [self.index(i) for i in index]
        shape = self.kernel.tensors[param].shape
        if held is None or 0 in shape:
            return Traced(np.full(np.broadcast_shapes(*(p.shape for p in places)), UNKNOWN), ())
        where = tuple(np.clip(p, 0, n - 1) for p, n in zip(places, shape, strict=True))
        return traced(held).at(where) if where else traced(held)
