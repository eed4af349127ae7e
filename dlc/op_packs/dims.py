"""Types of operands in op packs, as `float[N, C, ..., 2]`, and how they bind the dimensions of a tensor.

    type   := kind ('|' kind)* [ '[' dim (',' dim)* ']' ] [ '=' number ] [ '?' ]
    kind   := float | int | number | bool | any | an element type, as f32
    dim    := NAME | integer | ...

Without brackets any shape will do: `[...]`. Dimensions in the place of `...` broadcast with those of other operands.
An operand with `= number` may be left out and then has this value everywhere; one with `?` is then absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dlc.base.diagnostics import did_you_mean
from dlc.base.types import DTYPES, DType, Type, bool_, f32, i64
from dlc.kernel.define import ShapeError, same

REST: Final = "..."
_KINDS: Final = ("float", "int", "number", "bool", "any")
_SAMPLE: Final[Mapping[str, DType]] = {"float": f32, "int": i64, "number": f32, "bool": bool_, "any": f32}
_TYPE = re.compile(
    r"\s*(?P<kinds>[a-z][a-z0-9]*(?:\s*\|\s*[a-z][a-z0-9]*)*)\s*(?:\[(?P<dims>[^\[\]]*)\])?\s*"
    r"(?:=\s*(?P<default>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)|(?P<absent>\?))?\s*"
)
_DIM = re.compile(r"[A-Z][A-Z0-9_]*")


class BadType(ValueError):
    """A text that is no type of an operand; `help` says what to do."""

    def __init__(self, message: str, help: str = "") -> None:
        """With what is wrong, and what to do."""
        super().__init__(message)
        self.help = help


@dataclass(frozen=True)
class OperandType:
    """What an operand may be.

    Attributes:
        kinds: Element types, or families of them.
        dims: Names, sizes, and at most one `...`.
        default: The value of all elements where it is left out; None: it cannot be, unless it is `absent`.
        absent: Whether it may be left out without a value.
    """

    kinds: tuple[str, ...]
    dims: tuple[str | int, ...]
    default: float | None = None
    absent: bool = False

    @classmethod
    def parse(cls, text: str) -> OperandType:
        """Read a type. Raises BadType."""
        found = _TYPE.fullmatch(text)
        if found is None:
            raise BadType(f"{text!r} is not the type of an operand", "write for example float[N, C], or float for any")
        kinds = tuple(k.strip() for k in found["kinds"].split("|"))
        for kind in kinds:
            if kind not in _KINDS and kind not in DTYPES:
                raise BadType(f"there is no element type {kind}", did_you_mean(kind, [*_KINDS, *DTYPES]))
        return cls(kinds, _dims(found["dims"]), _number(found["default"]), bool(found["absent"]))

    @property
    def optional(self) -> bool:
        """Whether it may be left out."""
        return self.absent or self.default is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions that it binds."""
        return tuple(d for d in self.dims if isinstance(d, str) and d != REST)

    @property
    def sample(self) -> DType:
        """The element type of examples."""
        return _SAMPLE.get(self.kinds[0]) or DTYPES[self.kinds[0]]

    @property
    def may_be_float(self) -> bool:
        """Whether it may have a gradient."""
        return any(k in ("float", "number", "any") or (k in DTYPES and DTYPES[k].is_float) for k in self.kinds)

    def accepts(self, dtype: DType) -> bool:
        """Whether its elements may be of this type."""
        families = {"any", dtype.name}
        families |= {"float", "number"} if dtype.is_float else {"int", "number"} if dtype.is_integer else {"bool"}
        return not families.isdisjoint(self.kinds)

    def bind(self, name: str, given: Type, known: dict[str, int]) -> tuple[int, ...]:
        """The dimensions in the place of `...`; the named ones are added to `known`.

        Raises:
            ShapeError: the element type, the rank or a dimension does not fit.
        """
        if not self.accepts(given.dtype):
            raise ShapeError(f"{name} is {given.text}; its elements must be {' or '.join(self.kinds)}")
        rank, at = len(given.shape), self.dims.index(REST) if REST in self.dims else -1
        fixed = len(self.dims) - (at >= 0)
        if rank < fixed or (rank > fixed and at < 0):
            shown = ", ".join(map(str, self.dims))
            raise ShapeError(f"{name} is {given.text}; it must have the dimensions [{shown}]")
        rest = rank - fixed if at >= 0 else 0
        own = given.shape if at < 0 else (*given.shape[:at], *given.shape[at + rest :])
        for dim, size in zip((d for d in self.dims if d != REST), own, strict=True):
            if isinstance(dim, int):
                same(size, dim, f"a dimension of {name} and what it must be")
            else:
                known[dim] = same(known.get(dim, size), size, f"sizes of {dim} in {name} and before it")
        return given.shape[at : at + rest] if at >= 0 else ()


def _dims(text: str | None) -> tuple[str | int, ...]:
    if text is None:
        return (REST,)
    out: list[str | int] = []
    for word in (w.strip() for w in text.split(",")) if text.strip() else ():
        if word == REST and REST in out:
            raise BadType("`...` occurs twice", "one operand has it at most once")
        if word == REST or _DIM.fullmatch(word):
            out.append(word)
        elif word.isdecimal() and len(word) < 10:
            out.append(int(word))
        else:
            help = "dimensions are names in capital letters, whole numbers, or ..."
            raise BadType(f"{word!r} is not a dimension", help)
    return tuple(out)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise BadType(f"{text} is not a number") from None
