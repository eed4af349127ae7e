"""What an instruction's arithmetic is given, and how it says that its operands do not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from dlc_backend_s2train.codes import Flag, Slot, Splitting
from dlc_backend_s2train.program import Geometry, Hyper

Array = np.ndarray[Any, np.dtype[Any]]
Mode = Literal["fast", "bit-true"]
Results = dict[Slot, Array]
"""What goes into the slots that the instruction writes."""
Kind = Literal["float", "bit", "pointer", "label"]

_MOST: Final = 1 << 29
"""Elements of an array that is made on the way."""
_KINDS: Mapping[Kind, str] = {"float": "f", "bit": "b", "pointer": "u", "label": "i"}
"""Kind of an operand → numpy's letter for it."""


class OperandError(ValueError):
    """Operands that do not fit together, in a sentence without the instruction's number."""


@dataclass(frozen=True)
class Operands:
    """An instruction with the values of its operands."""

    flags: Flag
    splitting: Splitting
    geometry: Geometry | None
    hyper: Hyper
    values: Mapping[Slot, Array]
    """Of the slots that are read: fp32, bool (bits), u8 (pointers) or i32 (labels)."""
    given: frozenset[Slot]
    """All slots, those that are only written among them."""
    run: int = 0
    """How often the entry ran before: random bits depend on it."""
    first: int = 0
    """Elements of the written tensor that lie before what this instruction writes: random bits depend on it."""
    mode: Mode = "fast"

    @property
    def shape(self) -> Geometry:
        """The geometry, which the instruction must have."""
        if self.geometry is None:
            raise OperandError("there is no geometry")
        return self.geometry

    def get(self, slot: Slot, kind: Kind = "float") -> Array:
        """The value of an operand, which must be of the kind."""
        value = self.values[slot]
        if value.dtype.kind != _KINDS[kind]:
            raise OperandError(f"{slot} is stored as {value.dtype}, but it must be a {kind} here")
        return value

    def fit(self, slot: Slot, shape: tuple[int, ...], kind: Kind = "float") -> Array:
        """The value of an operand in a shape with as many elements."""
        value = self.get(slot, kind)
        if min(shape, default=0) < 0 or value.size != math.prod(shape):
            raise OperandError(f"{slot} is {_dims(value.shape)}, but {_dims(shape)} is needed")
        return value.reshape(shape)


def room(*shape: int) -> tuple[int, ...]:
    """The shape, if an array of it may be taken: geometries can say anything."""
    if min(shape, default=0) < 0 or math.prod(shape) > _MOST:
        raise OperandError(f"{_dims(shape)} is {math.prod(shape):,} elements, of which {_MOST:,} may be held")
    return shape


def of_channels(values: Array, rank: int) -> Array:
    """One number per channel, shaped to broadcast over [n, channel, …] of this rank."""
    return values.reshape(1, -1, *(1,) * (rank - 2))


def _dims(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
