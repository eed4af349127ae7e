"""What an instruction's arithmetic is given, and how values become bytes: the one place where results are rounded.

IEEE 754 binary16, to nearest, ties to even; subnormals are kept, what is too large becomes infinite, and every NaN has
the same bits: 0x7E00 in fp16, 0x7FC00000 in fp32. Bytes are little-endian, small elements lowest bits first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from dlc_backend_s2train.codes import Element, Flag, Slot, Splitting
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


NAN16: Final = 0x7E00
NAN32: Final = 0x7FC00000
_FLOATS: Final = {Element.FP16: ("<f2", "<u2", NAN16), Element.FP32: ("<f4", "<u4", NAN32)}
_SMALL: Final = {Element.BIT: "b", Element.PTR2: "u", Element.PTR4: "u", Element.INT32: "i"}


def rounded(x: Array) -> Array:
    """fp32[…] → fp32[…], each the nearest fp16."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return x.astype(np.float16).astype(np.float32)


def encode(values: Array, element: Element) -> Array:
    """Values in row-major order as bytes (u8[n]), the last one filled up with zero bits.

    Args:
        values: A float array for fp16 and fp32, else bool for bits, u8 for pointers, an integer array for int32.

    Raises:
        OperandError: values of another kind, or that the element cannot hold.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if element in _FLOATS:
        if flat.dtype.kind != "f":
            raise OperandError(f"{flat.dtype} goes into {element.name.lower()}")
        name, bits, nan = _FLOATS[element]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            stored = flat.astype(name)
        words = stored.view(bits)
        words[np.isnan(stored)] = nan
        return words.view(np.uint8)
    if flat.dtype.kind != _SMALL[element]:
        raise OperandError(f"{flat.dtype} goes into {element.name.lower()}")
    match element:
        case Element.BIT:
            return np.packbits(flat, bitorder="little")
        case Element.INT32:
            if flat.size and not -(1 << 31) <= int(flat.min()) <= int(flat.max()) < 1 << 31:
                raise OperandError(f"numbers from {flat.min()} to {flat.max()} go into int32")
            return flat.astype("<i4").view(np.uint8)
        case _:
            return _packed(flat, element)


def decode(data: Array, shape: tuple[int, ...], element: Element) -> Array:
    """The inverse of `encode`: u8[n] → fp32, bool, u8 or i32 of `shape`. Bits behind the last element are ignored."""
    count = math.prod(shape)
    match element:
        case Element.FP16 | Element.FP32:
            return data.view(_FLOATS[element][0]).astype(np.float32).reshape(shape)
        case Element.INT32:
            return data.view("<i4").astype(np.int32).reshape(shape)
        case Element.BIT:
            return np.unpackbits(data, count=count, bitorder="little").astype(np.bool_).reshape(shape)
        case _:
            shifts = np.arange(0, 8, element.bits, dtype=np.uint8)
            fields = (data[:, None] >> shifts) & np.uint8((1 << element.bits) - 1)
            return fields.reshape(-1)[:count].reshape(shape)


def _packed(flat: Array, element: Element) -> Array:
    """Pointers, several to a byte."""
    if flat.size and int(flat.max()) >> element.bits:
        raise OperandError(f"pointer {int(flat.max())} goes into {element.name.lower()}")
    each = 8 // element.bits
    padded = np.zeros(-(-flat.size // each) * each, np.uint8)
    padded[: flat.size] = flat
    shifts = np.arange(0, 8, element.bits, dtype=np.uint8)
    return np.bitwise_or.reduce(padded.reshape(-1, each) << shifts, axis=1).astype(np.uint8)
