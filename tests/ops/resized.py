"""Ops on operands of other sizes, numbers or symbols in place of those of samples, and arrays laid out for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.base.types import Type
from dlc.graph import Input, Op
from dlc.passes.lower import lower_op

Array = Any
ROOM = 5
"""Elements that there is room for behind the end."""


def replaced(op: Op, size: int, of: int, also: bool) -> Op:
    """The op on operands with another size or a symbol in place of a size; `also` in lists of its attributes.

    Raises Undecided, ValueError or TypeError: the op is not defined then.
    """

    def changed(values: Any) -> tuple[Any, ...]:
        return tuple(of if type(v) is int and v == size else v for v in values)

    operands = [Input(x.name, Type(x.dtype, changed(x.shape))) for x in op.operands if isinstance(x, Input)]
    rest = iter(operands)
    fields: dict[str, Any] = {}
    for name, held in op.operand_fields():
        several = tuple(next(rest) for _ in held) if isinstance(held, tuple) else None
        fields[name] = several if isinstance(held, tuple) else None if held is None else next(rest)
    attributes = {k: changed(v) if also and isinstance(v, tuple) else v for k, v in op.attrs.items()}
    found = type(op)(**fields, **attributes)
    lower_op(found)
    return found


def spread(array: Array, of: Type, generator: np.random.Generator) -> Array:
    """An array in the room of a type; what lies behind its ends is NaN, or any integer."""
    if of.dtype.is_float:
        room = np.full(of.room, np.nan, of.dtype.numpy)
    else:
        low, high = of.dtype.limits
        room = generator.integers(low, high, of.room, endpoint=True, dtype=np.int64 if low < 0 else np.uint64)
        room = room.astype(of.dtype.numpy)
    room[tuple(map(slice, array.shape))] = array
    return room
