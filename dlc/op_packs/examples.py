"""The examples of an op: arrays for its operands and its result, and values of its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dlc.base.types import Array, DType, Type, dtype_of_numpy
from dlc.graph import Input, Op
from dlc.op_packs.declared import Declared


@dataclass(frozen=True)
class Example:
    """One example, read."""

    operands: Mapping[str, Array]
    attributes: Mapping[str, Any]
    result: Array
    """Of any type: it is compared in that of the op."""

    def op(self, kind: type[Op]) -> Op:
        """The op on inputs named like its operands. Raises ShapeError: they do not fit."""
        return self.with_types(kind, {name: Type(_dtype(a), a.shape) for name, a in self.operands.items()})

    def with_types(self, kind: type[Op], types: Mapping[str, Type]) -> Op:
        """The op on inputs of these types."""
        given = {name: Input(name, of) for name, of in types.items()}
        return kind(**given, **self.attributes)


class BadExample(ValueError):
    """What is wrong with an entry of an example: `key` is its name, "" for the whole."""

    def __init__(self, message: str, key: str = "", help: str = "") -> None:
        """With what is wrong, where, and what to do."""
        super().__init__(message)
        self.key, self.help = key, help


def read_example(record: Mapping[str, Any], of: Declared) -> Example:
    """An example. Raises BadExample."""
    known = (*of.operands, *of.attributes, of.result)
    for key in record:
        if key not in known:
            raise BadExample(f"{key} is neither an operand nor an attribute nor the result", key, _all(known))
    for name, kind in of.operands.items():
        if name not in record and not kind.optional:
            raise BadExample(f"the example has no value for the operand {name}")
    if of.result not in record:
        raise BadExample(f"the example has no value for the result {of.result}")
    operands = {n: array(record[n], k.sample, n) for n, k in of.operands.items() if n in record}
    attributes: dict[str, Any] = {}
    for name, attribute in of.attributes.items():
        if name in record:
            try:
                attributes[name] = attribute.checked(record[name])
            except ValueError as problem:
                raise BadExample(f"attribute {name}: {problem}", name) from None
    return Example(operands, attributes, array(record[of.result], None, of.result))


def array(value: Any, dtype: DType | None, name: str) -> Array:
    """Nested lists of numbers as an array. Raises BadExample."""
    shape: list[int] = []
    inner = value
    while isinstance(inner, list):
        items = cast("list[Any]", inner)
        shape.append(len(items))
        inner = items[0] if items else 0
    flat: list[bool | int | float] = []
    _flatten(value, tuple(shape), flat, name)
    try:
        return np.array(flat, None if dtype is None else dtype.numpy).reshape(shape)
    except (OverflowError, ValueError, TypeError):
        raise BadExample(f"{name}: a value does not fit into {dtype}", name) from None


def _flatten(value: Any, shape: tuple[int, ...], into: list[bool | int | float], name: str) -> None:
    if not shape:
        if not isinstance(value, bool | int | float):
            raise BadExample(f"{name}: {value!r:.40} is not a number", name, "values are numbers in nested lists")
        into.append(value)
        return
    items = cast("list[Any]", value) if isinstance(value, list) else []
    if not isinstance(value, list) or len(items) != shape[0]:
        raise BadExample(f"{name}: lists of different lengths", name, "all rows of a dimension have one length")
    for item in items:
        _flatten(item, shape[1:], into, name)


def _dtype(a: Array) -> DType:
    found = dtype_of_numpy(a.dtype)
    assert found is not None
    return found


def _all(names: tuple[str, ...]) -> str:
    return f"it has {', '.join(names)}"
