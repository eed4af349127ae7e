"""Ops in the order of their evaluation, and their values: what `Op` itself needs of its expansion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast

import numpy as np

from dlc.base.budget import charge_elements, limit
from dlc.base.types import Array, Type, in_compute_type


class Node(Protocol):
    """What is walked: an `Op`, which is declared above this module."""

    @property
    def digest(self) -> str: ...
    @property
    def operands(self) -> Any: ...
    @property
    def types(self) -> tuple[Type, ...]: ...

    text_name: ClassVar[str]

    def evaluate(self, *args: Array) -> Any:
        """The result on arrays of the operands."""
        ...


N = TypeVar("N", bound=Node)
_GROWTH: Final = 4
"""How many times as large as its operands a value may be, whatever the budget says of memory."""


def toposort(outputs: Iterable[N], stop: Iterable[Node] = ()) -> tuple[N, ...]:
    """Ops that the outputs need, operands before users; `stop` and what is only behind it left out. Never recurses."""
    order: list[N] = []
    seen = {op.digest for op in stop}
    stack: list[tuple[N, bool]] = [(o, False) for o in reversed(tuple(outputs))]
    while stack:
        op, done = stack.pop()
        if done:
            order.append(op)
        elif op.digest not in seen:
            seen.add(op.digest)
            stack.append((op, True))
            stack.extend((x, False) for x in reversed(op.operands) if x.digest not in seen)
    return tuple(order)


def _value(op: Node, args: Sequence[Any]) -> Any:
    wide: list[Any] = [in_compute_type(cast("Array", a)) if isinstance(a, np.ndarray) else a for a in args]
    return op.evaluate(*wide)  # what is no array are all results of an op that has several


def as_result(value: Any, type: Type) -> Array:
    """An evaluation's outcome as an array of exactly the declared type."""
    return np.ascontiguousarray(np.asarray(value, type.dtype.numpy)).reshape(type.room)


def as_view(value: Any, type: Type) -> Array:
    """The same without a copy of what is only viewed otherwise: transposed, sliced, broadcast."""
    return np.asarray(value, type.dtype.numpy).reshape(type.room)


def charge_values(op: Node) -> None:
    """Charge the values of an op that is about to be evaluated to the build, if there is one.

    Values that are there already cost nothing, and what is made of large ones may be as large.
    """
    if op.text_name == "constant":
        return
    what = f"the value of {op.text_name}"
    read = _GROWTH * sum(t.nbytes for x in op.operands for t in x.types)
    for of in op.types:
        if of.nbytes > read:
            limit("memory", of.nbytes, what)
    charge_elements(sum(of.capacity for of in op.types), what)


def evaluate_ops(
    outputs: Sequence[Node],
    known: Mapping[Any, Array],
    value: Callable[[Any, Sequence[Any]], Any] = _value,
    result: Callable[[Any, Type], Array] = as_result,
) -> list[Any]:
    """The values of ops, given the values of others. Intermediate arrays are dropped after their last use.

    `value` computes one op, for those who want it computed otherwise: with perturbed operands, say. `result` makes an
    array of it, `as_view` for those who need no contiguous ones.
    """
    order = toposort(outputs, known)
    last = {x.digest: k for k, op in enumerate(order) for x in op.operands}
    keep = {o.digest for o in outputs}
    values: dict[str, Any] = {op.digest: v for op, v in known.items()}
    for k, op in enumerate(order):
        charge_values(op)
        with np.errstate(all="ignore"):
            got = value(op, [values[x.digest] for x in op.operands])
        several = len(op.types) > 1
        values[op.digest] = tuple(map(result, got, op.types)) if several else result(got, op.types[0])
        for x in op.operands:
            if last[x.digest] == k and x.digest not in keep:
                values.pop(x.digest, None)
    return [values[o.digest] for o in outputs]
