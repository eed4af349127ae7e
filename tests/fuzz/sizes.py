"""Dimensions that are known when a program runs, as numbers: their values in every call that a case compares.

A kind of node computes with them as with numbers; where it writes one into a model, `Maker.ints` writes the nodes that
compute it (Shape, Gather, Mul, …), as exporters do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

Shape = tuple[int, ...]

OPERATORS: Final[dict[str, Callable[[int, int], int]]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": lambda a, b: a // b,
}
"""ONNX's operator → what it gives; a quotient only of sizes, which are not negative."""


class Refused(Exception):
    """ONNX does not take the node, or it does not suit the test: another is drawn."""


class Size(int):
    """A size with one value for each call. As a number it is that of the first call.

    Attributes:
        at: The values.
        made: How it is computed: an ONNX operator and two operands; () for the dimension of a value.
    """

    at: tuple[int, ...]
    made: tuple[Any, ...]

    def __new__(cls, at: Sequence[int], made: tuple[Any, ...] = ()) -> Size:
        self = int.__new__(cls, at[0])
        self.at, self.made = tuple(at), made
        return self

    def __eq__(self, other: object) -> bool:
        """Whether both are equal in every call."""
        return isinstance(other, int) and self.at == _at(other, len(self.at))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.at)

    def __add__(self, other: int) -> int:
        return _computed("Add", self, other)

    def __radd__(self, other: int) -> int:
        return _computed("Add", other, self)

    def __sub__(self, other: int) -> int:
        return _computed("Sub", self, other)

    def __rsub__(self, other: int) -> int:
        return _computed("Sub", other, self)

    def __mul__(self, other: int) -> int:
        return _computed("Mul", self, other)

    def __rmul__(self, other: int) -> int:
        return _computed("Mul", other, self)

    def __floordiv__(self, other: int) -> int:
        return _computed("Div", self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _computed("Div", other, self)


def _at(size: int, calls: int) -> tuple[int, ...]:
    return size.at if isinstance(size, Size) else (int(size),) * calls


def _computed(op: str, a: int, b: int) -> int:
    if isinstance(a, float) or isinstance(b, float):  # a scale of a size is a number
        return OPERATORS[op](int(a) if isinstance(a, Size) else a, int(b) if isinstance(b, Size) else b)
    calls = len(a.at if isinstance(a, Size) else _sized(b).at)
    if op == "Div" and 0 in _at(b, calls):
        raise Refused("a quotient of a dimension that is 0")
    return size_of([OPERATORS[op](x, y) for x, y in zip(_at(a, calls), _at(b, calls), strict=True)], (op, a, b))


def _sized(size: int) -> Size:
    assert isinstance(size, Size)
    return size


def size_of(at: Sequence[int], made: tuple[Any, ...] = ()) -> int:
    """A plain number where it is the same in every call."""
    return Size(at, made) if len(set(at)) > 1 else int(at[0])


def joined(several: Sequence[Shape]) -> Shape:
    """One shape of those in each call, which have the same rank."""
    return tuple(map(size_of, zip(*several, strict=True)))


def at(shape: Sequence[int], call: int) -> Shape:
    """A shape in one call."""
    return tuple(e.at[call] if isinstance(e, Size) else int(e) for e in shape)


def largest(shape: Sequence[int]) -> Shape:
    """The room that every call fits into."""
    return tuple(max(e.at) if isinstance(e, Size) else int(e) for e in shape)


def least(size: int) -> int:
    """The smallest value of a size."""
    return min(size.at) if isinstance(size, Size) else int(size)


@dataclass(frozen=True)
class Dimension:
    """A named dimension of inputs."""

    low: int
    high: int
    unit: int = 1
    limited: bool = True
    """Whether the program is built for these sizes only."""

    @classmethod
    def drawn(cls, random: Random, empty: bool) -> Dimension:
        """A range of a few sizes; from 0 only if dimensions may be `empty`."""
        if empty and random.random() < 0.5:
            return cls(0, random.choice((1, 3, 6)))
        unit = random.choice((1, 1, 1, 1, 2, 3, 4, 8))
        low = unit * random.choice((1, 1, 1, 2, 3, 5))
        return cls(low, low + unit * random.choice((1, 2, 3, 5, 7, 11)), unit)

    def __str__(self) -> str:
        """As `--dim` takes it; "" where it is not given."""
        if not self.limited:
            return ""
        low = "" if self.low == self.unit else str(self.low)
        return f"{low}..{self.high}{f'/{self.unit}' if self.unit > 1 else ''}"

    def any(self, random: Random) -> int:
        """One of its sizes."""
        return random.randrange(self.low, self.high + 1, self.unit)


def drawn_calls(dims: Sequence[Dimension], random: Random) -> list[tuple[int, ...]]:
    """Sizes of the dimensions in each call: all smallest, all largest, and others. The first one is any of these."""
    found = [tuple(d.low for d in dims), tuple(d.high for d in dims)]
    found += [tuple(d.any(random) for d in dims) for _ in range(random.choice((1, 2, 3)))]
    found = list(dict.fromkeys(found))
    first = found.pop(random.randrange(len(found)))
    return [first, *found]
