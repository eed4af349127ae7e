"""Extents read from text: the inverse of `str`, as `2*seq(1,128)+1`."""

from __future__ import annotations

import re

from dlc.base.extents import NAME, Dim, Extent, smaller
from dlc.base.polynomials import Symbol

_MAX_DEPTH = 32


def parse(text: str) -> Extent:
    """The inverse of `str`. Raises ValueError: the text is no extent."""
    reader = _Reader(text)
    found = reader.sum()
    if reader.rest:
        raise ValueError(f"not an extent: {text!r}")
    return found


def parse_symbol(text: str) -> Symbol:
    """The inverse of `str` for a symbol, also for one with a single size. Raises ValueError: the text is no symbol."""
    reader = _Reader(text)
    found = reader.symbol()
    if found is None or reader.rest:
        raise ValueError(f"not a size: {text!r}")
    return found


class _Reader:
    """Recursive descent over sums, products, quotients by numbers, the smaller one of two, and symbols."""

    def __init__(self, text: str) -> None:
        self.rest = text
        self._depth = 0

    def _take(self, pattern: str) -> str | None:
        found = re.match(pattern, self.rest)
        if found is None:
            return None
        self.rest = self.rest[found.end() :]
        return found[0]

    def _number(self) -> int:
        text = self._take(r"\d{1,18}")
        if text is None:
            raise ValueError(f"not an extent: a number is missing at {self.rest!r}")
        return int(text)

    def sum(self) -> Extent:
        """Terms with signs."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("an extent nested too deeply")
        total: Extent = 0
        sign = self._take(r"-") or "+"
        while True:
            term = self._term()
            total = total - term if sign == "-" else total + term
            sign = self._take(r"[+-]") or ""
            if not sign:
                self._depth -= 1
                return total

    def _term(self) -> Extent:
        total = self._factor()
        while self._take(r"\*"):
            total = total * self._factor()
        return total

    def _factor(self) -> Extent:
        if self._take(r"\("):
            inner = self.sum()
            if not self._take(r"\)//"):
                raise ValueError(f"not an extent: a divisor is missing at {self.rest!r}")
            return inner // self._number()
        if self._take(r"min\((?!\d+,\d+[,)])"):  # with numbers only, it is a symbol of this name
            first = self.sum()
            if not self._take(r","):
                raise ValueError(f"not an extent: min has one operand before {self.rest!r}")
            second = self.sum()
            if not self._take(r"\)"):
                raise ValueError(f"not an extent: min is not closed before {self.rest!r}")
            return smaller(first, second)
        of = self.symbol()
        if of is None:
            return self._number()
        if of.low == of.high:
            raise ValueError(f"not an extent: {of}")
        return Dim((((of,), 1),))

    def symbol(self) -> Symbol | None:
        """A name and its bounds; None where there is no name."""
        name = self._take(NAME.pattern)
        if name is None:
            return None
        if not self._take(r"\("):
            raise ValueError(f"not an extent: {name} has no bounds")
        numbers = [self._number()]
        while self._take(r","):
            numbers.append(self._number())
        if not self._take(r"\)") or not 2 <= len(numbers) <= 3:
            raise ValueError(f"not an extent: the bounds of {name}")
        of = Symbol(name, *numbers)
        if of.low > of.high or of.unit < 1:
            raise ValueError(f"not an extent: {of}")
        return of
