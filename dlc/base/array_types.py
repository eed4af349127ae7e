"""`ArrayType`: element type and shape as annotations of Python functions write them: `f32["n=1..64", 3]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dlc.base.extents import Extent, symbol
from dlc.base.polynomials import LONGEST

_SIZE: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:=\s*(\d*)\s*\.\.\s*(\d*)\s*(?:/\s*(\d+))?)?\s*", re.ASCII)


@dataclass(frozen=True)
class ArrayType:
    """An array with these elements and sizes.

    A size is a number, or a name of a size that each call has anew: "n" (1 or more), "n=1..64", "n=..64", "n=8..512/8"
    (multiples of 8). Equal names are one size; bounds need to stand at one of them only.
    """

    dtype: Any
    """A `DType`, which is declared above this module."""
    dims: tuple[int | str, ...]

    def bounds(self) -> dict[str, tuple[int, int, int]]:
        """Name → (least, most, unit) of the sizes that state bounds. Raises ValueError for what is no size."""
        found: dict[str, tuple[int, int, int]] = {}
        for d in self.dims:
            name, limits = _parsed(d)
            if name and limits and found.setdefault(name, limits) != limits:
                raise ValueError(f"two ranges for the size {name}")
        return found

    def shape(self, bounds: Mapping[str, tuple[int, int, int]]) -> tuple[Extent, ...]:
        """The sizes, with the bounds that names have anywhere. Raises ValueError."""
        return tuple(_extent(d, bounds) for d in self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(d if isinstance(d, str) else str(d) for d in self.dims)}]"


def _parsed(d: int | str) -> tuple[str, tuple[int, int, int] | None]:
    """(name or "", (least, most, unit) or None) of a size."""
    if isinstance(d, int) and not isinstance(d, bool) and d >= 0:
        return "", None
    match = _SIZE.fullmatch(d) if isinstance(d, str) else None
    if match is None:
        raise ValueError(f"{d!r} is no size: write 64, 'n', 'n=1..64' or 'n=8..512/8'")
    name, low, high, unit = match.groups()
    if ".." not in str(d):
        return name, None
    step = int(unit or 1)
    least, most = int(low or step), int(high) if high else LONGEST * step
    if not step or least > most or least % step or (high and most % step):
        raise ValueError(f"{d!r}: the smallest and the largest size are multiples of the step, in this order")
    return name, (least, most, step)


def _extent(d: int | str, bounds: Mapping[str, tuple[int, int, int]]) -> Extent:
    name, _ = _parsed(d)
    if not name:
        return int(d)
    least, most, unit = bounds.get(name, (1, LONGEST, 1))
    return symbol(name, least // unit, most // unit, unit)
