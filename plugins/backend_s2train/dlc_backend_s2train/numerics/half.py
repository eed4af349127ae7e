"""How values become bytes and bytes become values: the one place where results are rounded.

IEEE 754 binary16, to nearest, ties to even; subnormals are kept, what is too large becomes infinite, and every NaN has
the same bits: 0x7E00 in fp16, 0x7FC00000 in fp32. Bytes are little-endian, small elements lowest bits first.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dlc_backend_s2train.codes import Element
from dlc_backend_s2train.numerics.operands import Array, OperandError

NAN16: Final = 0x7E00
NAN32: Final = 0x7FC00000
_FLOATS: Final = {Element.FP16: ("<f2", "<u2", NAN16), Element.FP32: ("<f4", "<u4", NAN32)}
_KINDS: Final = {Element.BIT: "b", Element.PTR2: "u", Element.PTR4: "u", Element.INT32: "i"}


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
    if flat.dtype.kind != _KINDS[element]:
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
