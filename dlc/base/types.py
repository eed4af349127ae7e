"""Element types and tensor types: what every level of the compiler agrees on.

They sit below both `kernel` and `graph`, because a kernel's parameters and a graph's values carry the same types.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
"""An array of any element type and shape."""

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True)
class DType:
    """An element type. `f32`, `i64` and so on are the only instances; compare with `is` or `==`."""

    name: str
    kind: Kind
    itemsize: int

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype with the same bits."""
        return np.dtype("bool" if self.kind == "bool" else f"{self.kind}{self.itemsize * 8}")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type; (0, 1) for bool.

        Raises:
            ValueError: the type is floating point.
        """
        if self.is_float:
            raise ValueError(f"{self.name} is not an integer type")
        if self.kind == "bool":
            return 0, 1
        bits = self.itemsize * 8
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if self.kind == "int" else (0, (1 << bits) - 1)

    def __str__(self) -> str:
        return self.name


f16: Final = DType("f16", "float", 2)
f32: Final = DType("f32", "float", 4)
f64: Final = DType("f64", "float", 8)
i8: Final = DType("i8", "int", 1)
i16: Final = DType("i16", "int", 2)
i32: Final = DType("i32", "int", 4)
i64: Final = DType("i64", "int", 8)
u8: Final = DType("u8", "uint", 1)
u16: Final = DType("u16", "uint", 2)
u32: Final = DType("u32", "uint", 4)
u64: Final = DType("u64", "uint", 8)
bool_: Final = DType("bool", "bool", 1)

DTYPES: Final[dict[str, DType]] = {t.name: t for t in (f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_)}


def dtype_of_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The element type with the same bits as a numpy dtype, or None when dlc has no such type."""
    for candidate in DTYPES.values():
        if candidate.numpy == dtype:
            return candidate
    return None


def shortest(value: bool | int | float, dtype: DType) -> bool | int | float:
    """The literal with the fewest digits that makes the same element: 0.1 for the f32 0.10000000149011612."""
    if not dtype.is_float:
        return value
    with np.errstate(over="ignore"):
        element = dtype.numpy.type(value)
        exact, short = float(element), float(str(element))
        # Decimal to f64 to f32 rounds twice: once in a very long while the shortest digits name a neighbour. And what
        # is short with an exponent may not be without: 1e+12 is written 1000000000000.0, the element 999999995904.0.
        same = np.isnan(element) or dtype.numpy.type(short) == element
        return short if same and len(repr(short)) <= len(repr(exact)) else exact


@dataclass(frozen=True)
class Type:
    """The type of a tensor: element type and static shape. `str` gives `f32[2,3]`."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements (exact Python integer, so it never overflows)."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: tuple[int, ...]) -> Type:
        return Type(self.dtype, shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @classmethod
    def parse(cls, text: str) -> Type:
        """The inverse of `str`.

        Raises:
            ValueError: the text is not a type.
        """
        m = _TYPE.fullmatch(text)
        if m is None or m[1] not in DTYPES:
            raise ValueError(f"not a tensor type: {text!r}")
        return cls(DTYPES[m[1]], tuple(int(d) for d in m[2].split(",")) if m[2] else ())


_TYPE = re.compile(r"([a-z]+\d*)\[((?:\d+(?:,\d+)*)?)\]")
