"""Values of a model that is being drawn: their element types and shapes, and what operators do to rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tests.fuzz.sizes import at, largest

FLOATS: Final = ("float32", "float64", "float16")
SIGNED: Final = ("int64", "int32", "int8", "int16")
UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64")
INTEGERS: Final = (*SIGNED, *UNSIGNED)
KINDS: Final = {"f": FLOATS, "i": INTEGERS, "s": SIGNED, "b": ("bool",), "n": (*FLOATS, *INTEGERS)}
"""Letter → element types: floats, integers, signed integers, booleans, numbers."""

MOVEMENTS: Final = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "Expand", "Concat")
"""Operators that only move elements."""
EXACT: Final = frozenset(
    (
        *MOVEMENTS,
        *("Gather", "GatherElements", "GatherND", "Split", "Pad", "Tile", "Trilu", "Where", "Shape", "Size", "TopK"),
        *("Relu", "Neg", "Abs", "Max", "Min", "Clip", "Sign", "Floor", "Ceil", "ArgMax", "ArgMin", "ReduceMax"),
        *("ReduceMin", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "IsNaN", "IsInf", "Hardmax"),
        *("Compress", "NonZero", "Unique", "NonMaxSuppression", "OneHot", "MaxPool", "GlobalMaxPool"),
    )
)
"""Operators that round nothing: they choose, move and compare."""


@dataclass(frozen=True)
class Value:
    """A tensor of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def room(self) -> int:
        """Elements of the largest call."""
        return math.prod(largest(self.shape))

    def at(self, call: int) -> tuple[int, ...]:
        """Its shape in one call."""
        return at(self.shape, call)

    def of(self, letters: str) -> bool:
        """Whether the element type is one of `KINDS`."""
        return any(self.dtype in KINDS[c] for c in letters)
