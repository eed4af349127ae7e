"""An interpreter of loops: slow, and strict about what C would leave undefined.

Reading outside of a tensor, reading what nobody wrote, and a variable without a value all raise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.loops import Block, Fold, For, If, Lanes, Let, Local, Prefetch, Program, Set, Stmt, Store
from dlc.kernel.scalar import SCALARS

Array = np.ndarray[Any, np.dtype[Any]]


def run_program(program: Program, args: Sequence[Array]) -> tuple[Array, ...]:
    """Results of a program on arrays of its parameters' types.

    Raises:
        IndexError: an access outside of a tensor, or of an element that has no value yet.
        KeyError: a variable without a value.
    """
    tensors = {p.name: np.ravel(a) for p, a in zip(program.params, args, strict=True)}
    tensors |= {r.name: np.zeros(r.type.size, r.dtype.numpy) for r in program.results}
    tensors |= {b.name: np.zeros(b.size, b.dtype.numpy) for b in program.buffers}
    given = {p.name for p in program.params}
    written = {name: np.full(a.size, name in given) for name, a in tensors.items()}
    machine = _Machine(tensors, written)
    with np.errstate(all="ignore"):
        machine.run(program.body)
    return tuple(tensors[r.name].reshape(r.shape) for r in program.results)


class _Machine:
    def __init__(self, tensors: Mapping[str, Array], written: Mapping[str, Array]) -> None:
        self._tensors, self._written = tensors, written
        self._values: dict[str, Any] = {}

    def run(self, body: Sequence[Stmt]) -> None:
        """Statements in order."""
        for s in body:
            self._step(s)

    def _step(self, s: Stmt) -> None:
        match s:
            case For(axis, start, stop, inner, step):
                for k in range(int(self._value(start)), int(self._value(stop)), step):
                    self._values[axis.name] = k
                    self.run(inner)
                self._values.pop(axis.name, None)
            case If(condition, then, otherwise):
                self.run(then if self._value(condition) else otherwise)
            case Let(local, value) | Set(local, value):
                assert isinstance(s, Let) or local.name in self._values, f"{local.name} is not declared"
                self._values[local.name] = _as(self._value(value), local)
            case Store(out, at, value, lanes):
                spot = self._spot(out, at, lanes)
                self._tensors[out][spot] = self._value(value)
                self._written[out][spot] = True
            case Prefetch(tensor, at, _):
                self._spot(tensor, at, 1)
            case Block(inner):
                self.run(inner)

    def _spot(self, name: str, at: Expr, lanes: int) -> slice:
        first = int(self._value(at))
        size = self._tensors[name].size
        if first < 0 or first + lanes > size:
            raise IndexError(f"{name}[{first}] and {lanes} elements of {size}")
        return slice(first, first + lanes)

    def _read(self, name: str, at: Expr, lanes: int) -> Array:
        spot = self._spot(name, at, lanes)
        if not self._written[name][spot].all():
            raise IndexError(f"{name}[{spot.start}] is read before it is written")
        return self._tensors[name][spot].copy()

    def _value(self, e: Expr) -> Any:
        match e:
            case Const(v):
                return v
            case Axis(name, _) | Local(name, _, _):
                return self._values[name]
            case Load(name, (at,)):
                return self._read(name, at, 1)[0]
            case Lanes(Load(name, (at,)), n):
                return self._read(name, at, n)
            case Fold(fn, vector):
                parts = list(self._values[vector.name])
                while len(parts) > 1:
                    half = len(parts) // 2
                    parts = [SCALARS[fn].numpy(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
                return parts[0]
            case Apply("select", (condition, then, otherwise)):
                return self._value(then if self._value(condition) else otherwise)
            case Apply("and" | "or" as fn, (a, b)):
                first = bool(self._value(a))
                return first if first == (fn == "or") else bool(self._value(b))
            case Apply(fn, args):
                return SCALARS[fn].numpy(*(self._value(a) for a in args))
            case _:
                raise AssertionError(e)


def _as(value: Any, local: Local) -> Any:
    converted = np.asarray(value, local.dtype.numpy)
    return np.broadcast_to(converted, (local.lanes,)).copy() if local.lanes > 1 else converted[()]
