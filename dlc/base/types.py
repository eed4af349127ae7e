"""Element types and tensor types: what every level of the compiler agrees on.

They sit below both `kernel` and `graph`, because a kernel's parameters and a graph's values carry the same types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from dlc.base import extents
from dlc.base.extent_text import parse, parse_symbol
from dlc.base.float_format import FloatFormat
from dlc.base.polynomials import Symbol

if TYPE_CHECKING:
    from dlc.base.array_types import ArrayType

Array = np.ndarray[Any, np.dtype[Any]]
"""An array of any element type and shape."""

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True)
class DType:
    """An element type. `f32`, `i64` and so on are the only instances; compare with `is` or `==`.

    Narrow types are for storage: what is computed with their values is computed in `compute` and rounded to the type.
    Constants of less than 8 bits have `per_byte` elements in a byte, as in ONNX's files; in arrays, and in what a
    program reads and writes, every element has a byte of its own.

    Attributes:
        name: How every text spells it.
        kind: What its values are.
        bits: Bits of an element that count; the others of its bytes are zero.
        format: Layout of a narrow float.
        library: Name of the numpy dtype in the package ml_dtypes, for those that numpy does not have.
    """

    name: str
    kind: Kind
    bits: int
    format: FloatFormat | None = None
    library: str = ""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DType) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __getitem__(self, dims: int | str | tuple[int | str, ...]) -> ArrayType:
        """The annotation of an array with such elements: `f32["n=1..64", 3]`; `f32[()]` has no dimensions."""
        from dlc.base.array_types import ArrayType

        return ArrayType(self, dims if isinstance(dims, tuple) else (dims,))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return -(-self.bits // 8)

    @property
    def per_byte(self) -> int:
        """Elements in a byte where they are packed, the first in the lowest bits; 1 for types of whole bytes."""
        return max(1, 8 // self.bits)

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype with the same bits."""
        if self.library:
            import ml_dtypes  # only models with such types need it

            return np.dtype(getattr(ml_dtypes, self.library))
        return np.dtype("bool" if self.kind == "bool" else f"{self.kind}{self.bits}")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def narrow(self) -> bool:
        """Whether it is a type of storage alone."""
        return self.compute is not self

    @cached_property
    def compute(self) -> DType:
        """The type in which its values are computed with; itself unless it is narrow."""
        if self.format:
            return f32
        return i32 if self.library else self

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
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.kind == "int" else (0, (1 << self.bits) - 1)

    @property
    def extremes(self) -> tuple[float, float]:
        """Lowest and highest value: infinities where a float has them, `limits` of an integer."""
        if not self.is_float:
            return self.limits
        if self.format is None or self.format.specials == "ieee":
            return -math.inf, math.inf
        largest = self.format.largest
        return (-largest if self.format.signed else self.format.smallest), largest

    def wrapped(self, value: int) -> int:
        """An integer without the bits that an integer type does not have."""
        low, _ = self.limits
        return (value - low) % (1 << self.bits) + low

    def __str__(self) -> str:
        return self.name


bf16: Final = DType("bf16", "float", 16, FloatFormat(8, 7, 127), "bfloat16")
f16: Final = DType("f16", "float", 16, FloatFormat(5, 10, 15))
f32: Final = DType("f32", "float", 32)
f64: Final = DType("f64", "float", 64)
i8: Final = DType("i8", "int", 8)
i16: Final = DType("i16", "int", 16)
i32: Final = DType("i32", "int", 32)
i64: Final = DType("i64", "int", 64)
u8: Final = DType("u8", "uint", 8)
u16: Final = DType("u16", "uint", 16)
u32: Final = DType("u32", "uint", 32)
u64: Final = DType("u64", "uint", 64)
bool_: Final = DType("bool", "bool", 8)

NARROW: Final = (
    bf16,
    DType("f8e4m3fn", "float", 8, FloatFormat(4, 3, 7, "fn"), "float8_e4m3fn"),
    DType("f8e4m3fnuz", "float", 8, FloatFormat(4, 3, 8, "fnuz"), "float8_e4m3fnuz"),
    DType("f8e5m2", "float", 8, FloatFormat(5, 2, 15), "float8_e5m2"),
    DType("f8e5m2fnuz", "float", 8, FloatFormat(5, 2, 16, "fnuz"), "float8_e5m2fnuz"),
    DType("f8e8m0", "float", 8, FloatFormat(8, 0, 127, "scale"), "float8_e8m0fnu"),
    DType("f4e2m1", "float", 4, FloatFormat(2, 1, 1, "finite"), "float4_e2m1fn"),
    DType("i4", "int", 4, library="int4"),
    DType("u4", "uint", 4, library="uint4"),
    DType("i2", "int", 2, library="int2"),
    DType("u2", "uint", 2, library="uint2"),
)
"""Types that numpy does not have. One more is one more row here, and its name in the tables of a format that has it."""

DTYPES: Final[dict[str, DType]] = {
    t.name: t for t in (f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_, *NARROW)
}


def dtype_of_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The element type with the same bits as a numpy dtype, or None when dlc has no such type."""
    known = NARROW if dtype.isbuiltin == 2 else DTYPES.values()
    for candidate in known:
        if bool(candidate.library) == (dtype.isbuiltin == 2) and candidate.numpy == dtype:
            return candidate
    return None


def packed(array: Array) -> Array:
    """The bytes of a tensor's elements in C order, several of less than 8 bits in each; others as they are, flat."""
    dtype = dtype_of_numpy(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype is None or dtype.per_byte == 1:
        return flat
    count, bits = dtype.per_byte, dtype.bits
    elements = np.zeros(-(-flat.size // count) * count, np.uint8)
    elements[: flat.size] = flat.view(np.uint8) & (1 << bits) - 1
    rows = elements.reshape(-1, count)
    found = rows[:, 0].copy()
    for k in range(1, count):
        found |= rows[:, k] << k * bits
    return found


def unpacked(of: Type, data: Array) -> Array:
    """The elements of a tensor whose bytes `packed` made; of elements of less than 8 bits only."""
    count, bits = of.dtype.per_byte, of.dtype.bits
    found = np.empty((data.size, count), np.uint8)
    for k in range(count):
        found[:, k] = data >> k * bits & (1 << bits) - 1
    return found.reshape(-1)[: of.size].view(of.dtype.numpy).reshape(of.shape)


def in_compute_type(array: Array) -> Array:
    """Elements of a narrow type in the type that they are computed with; others as they are."""
    if array.dtype.isbuiltin != 2 and array.dtype.char != "e":  # numpy's own, but for f16
        return array
    found = dtype_of_numpy(array.dtype)
    return array if found is None else array.astype(found.compute.numpy)


def shortest(value: bool | int | float, dtype: DType) -> bool | int | float:
    """The literal with the fewest digits that makes the same element: 0.1 for the f32 0.10000000149011612."""
    if not dtype.is_float:
        return value
    with np.errstate(over="ignore"):
        element = dtype.numpy.type(value)
        exact, short = float(element), float(str(element))
        # Decimal to f64 to f32 rounds twice: once in a very long while the shortest digits name a neighbour. And what
        # is short with an exponent may not be without: 1e+12 is written 1000000000000.0, the element 999999995904.0.
        same = bool(np.isnan(element)) or dtype.numpy.type(short) == element
        return short if same and len(repr(short)) <= len(repr(exact)) else exact


@dataclass(frozen=True)
class Type:
    """The type of a tensor: element type and shape. `str` gives `f32[2,3]`.

    A dimension is a number, or a `dlc.base.extents.Dim` where it is known when the program runs. Such a tensor is laid
    out for the largest size of every dimension, unless it is `dense`: `f32[*,batch(1,8),3]`.

    Attributes:
        dtype: The element type.
        shape: The dimensions, outermost first; () for a scalar.
        dense: Its elements lie one behind the other, as callers have them; kernels see it as one dimension.
        symbol: A scalar that holds the size of this symbol: `i64[=batch(1,8)]`.
    """

    dtype: DType
    shape: tuple[int, ...]
    dense: bool = False
    symbol: Symbol | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements (exact Python integer, so it never overflows; a `Dim` where a dimension is one)."""
        return math.prod(self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """What subscripts in kernels run over (`Dim` where a dimension is one): one, of all elements, where dense."""
        return (self.size,) if self.dense else self.shape

    @cached_property
    def room(self) -> tuple[int, ...]:
        """How the tensor is laid out in memory: with the largest size of every dimension, or flat."""
        return tuple(map(extents.capacity, self.extents))

    @property
    def capacity(self) -> int:
        """Elements that there is room for: `size`, where that is a number."""
        return math.prod(self.room)

    @property
    def reach(self) -> int:
        """Elements from the first of the room to the last one of a call (a `Dim` where a dimension is one)."""
        if self.dense:
            return self.size
        last, stride = 0, 1
        for d, room in zip(reversed(self.shape), reversed(self.room), strict=True):
            last, stride = last + (d - 1) * stride, stride * room
        return last + 1

    @property
    def is_open(self) -> bool:
        """Whether a dimension is known only when the program runs."""
        return extents.is_open(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the room."""
        return self.capacity * self.dtype.itemsize

    @property
    def likely_bytes(self) -> int:
        """Bytes at the largest sizes, or at the least ones where nobody limits them."""
        return math.prod(map(extents.likely, self.shape)) * self.dtype.itemsize

    @property
    def packed_bytes(self) -> int:
        """Bytes of the elements where those of less than 8 bits are packed: in constants, and in ONNX's files."""
        return -(-self.capacity // self.dtype.per_byte) if self.dtype.per_byte > 1 else self.nbytes

    def with_shape(self, shape: tuple[int, ...]) -> Type:
        return Type(self.dtype, shape)

    def __str__(self) -> str:
        dims = [*(["*"] if self.dense else []), *([f"={self.symbol}"] if self.symbol else []), *map(str, self.shape)]
        return f"{self.dtype}[{','.join(dims)}]"

    @property
    def text(self) -> str:
        """For people: `f32[batch,3]`, without the bounds of sizes."""
        return f"{self.dtype}[{','.join(map(extents.shown, self.shape))}]"

    def at(self, sizes: Mapping[str, int]) -> Type:
        """The type for given sizes of the symbols, by name: in numbers, as callers have it."""
        return Type(self.dtype, tuple(extents.value(d, sizes) for d in self.shape), symbol=self.symbol)

    @classmethod
    def parse(cls, text: str) -> Type:
        """The inverse of `str`.

        Raises:
            ValueError: the text is not a type.
        """
        m = _TYPE.fullmatch(text)
        if m is None or m[1] not in DTYPES:
            raise ValueError(f"not a tensor type: {text!r}")
        return cls(DTYPES[m[1]], *parse_dims(m[2]))


def parse_dims(text: str) -> tuple[tuple[int, ...], bool, Symbol | None]:
    """(shape, dense, symbol) from what stands in the brackets of a type. Raises ValueError: it is none of a type."""
    dims = _parted(text) if text.strip() else []
    dense = dims[:1] == ["*"]
    if text.startswith("="):
        return (), False, parse_symbol(text[1:])
    shape = tuple(map(parse, dims[dense:]))
    if any(extents.bounds(d)[0] < 0 for d in shape):
        raise ValueError(f"a dimension of [{text}] may be negative")
    return shape, dense, None


_TYPE = re.compile(r"([a-z][a-z0-9]*)\[([^\[\]]*)\]")


def _parted(text: str) -> list[str]:
    """What stands between commas; those inside parentheses are of bounds, and of the operands of `min`."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
