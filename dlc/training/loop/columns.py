"""`Column`: an array of a data set, seen as rows of one argument of a program."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error, quote
from dlc.base.types import Array, Type, dtype_of_numpy

if TYPE_CHECKING:
    from dlc.api.program import Port
    from dlc.training.loop.arrays import Stored


@dataclass(frozen=True)
class Column:
    """All rows of one argument."""

    port: Port
    array: Array = field(repr=False)
    """As it was stored, but for dimensions of size 1: [rows * per, …]."""
    place: str
    """Where it came from, for messages."""
    per: int
    """Rows of the array for each row of the set."""

    @property
    def rows(self) -> int:
        """Whole rows of the set."""
        return len(self.array) // self.per

    def take(self, index: Array) -> Array:
        """Rows of the set as an array of the argument's element type, C-contiguous and aligned."""
        if self.per > 1:
            index = (index[:, None] * self.per + np.arange(self.per)).reshape(-1)
        return np.require(self.array[index], self.port.type.dtype.numpy, ("C", "A"))

    def lost(self, block: Array) -> Array | None:
        """Which values the argument's element type cannot take; None where it takes all of them."""
        source, target = block.dtype, self.port.type.dtype
        if source.newbyteorder("=") == target.numpy or source.kind == "b":
            return None
        if target.is_integer:
            low, high = target.limits
            return (block < low) | (block > high)
        with np.errstate(over="ignore"):
            moved = block.astype(target.numpy)
        if source.kind == "f":
            return np.isinf(moved) & ~np.isinf(block)
        # A float beyond an integer's range cannot be compared as that integer; f64 tells them apart well enough.
        return moved.astype(np.float64) != block.astype(np.float64)

    @property
    def losing(self) -> str:
        """What the values that `lost` tells have in common."""
        return f"cannot be converted to {self.port.type.dtype}"


def column(port: Port, stored: Stored, size: int) -> tuple[Column, tuple[Diagnostic, ...]]:
    """The rows of an argument from a stored array, and notes about what was done to them.

    Args:
        port: The argument.
        stored: An array of as many rows as there are.
        size: Rows of a batch.

    Raises:
        DlcError: (USAGE) the array has another shape, or elements that cannot be converted safely.
    """
    per, rest = port.type.shape[0] // size, port.type.shape[1:]
    shape = _fitting(stored.shape, per, rest)
    if shape is None:
        raise _refused(port, stored, f"expected {port.type} batches: rows of {_row(per, rest)}", _remedy(port, stored))
    if not _convertible(stored.dtype, port.type):
        remedy = f"convert it with numpy, if that is what is meant: array.astype({str(port.type.dtype.numpy)!r})"
        raise _refused(port, stored, f"expected elements {port.type.dtype}", remedy)
    notes: list[Diagnostic] = []
    if shape != stored.shape:
        text = f"{quote(port.name)}: rows of {_row(1, stored.shape[1:])} are taken as {_row(per, rest)}"
        notes.append(Diagnostic("reshaped", text, "note", Location(stored.place)))
    if stored.dtype.newbyteorder("=") != port.type.dtype.numpy:
        text = f"{quote(port.name)}: {stored.dtype} is converted to {port.type.dtype.numpy}"
        notes.append(Diagnostic("converted", text, "note", Location(stored.place)))
    return Column(port, stored.load().reshape(shape), stored.place, per), tuple(notes)


def _fitting(found: tuple[int, ...], per: int, rest: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape to see a stored array in: [rows * per, *rest]. Dimensions of size 1 may be added or missing."""
    if not found:
        return None
    if _without_ones(found[1:]) == _without_ones(rest) and found[0] % per == 0:
        return (found[0], *rest)
    if per > 1 and _without_ones(found[1:]) == _without_ones((per, *rest)):
        return (found[0] * per, *rest)
    return None


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _convertible(source: np.dtype[np.generic], target: Type) -> bool:
    """Whether conversion can be safe; values decide whether it is."""
    if target.dtype.is_float:
        return True
    return source.kind in ("iub" if target.dtype.is_integer else "b")


def _row(per: int, rest: tuple[int, ...]) -> str:
    shape = (per, *rest) if per > 1 else rest
    return "x".join(map(str, shape)) or "one number"


def _refused(port: Port, stored: Stored, expected: str, remedy: str) -> DlcError:
    dtype = dtype_of_numpy(stored.dtype.newbyteorder("="))
    shape = f"[{','.join(map(str, stored.shape))}]"
    return error(
        "wrong-array",
        f"{quote(port.name)}: {expected}, found {dtype or stored.dtype}{shape}",
        location=Location(stored.place),
        help=remedy,
        exit_code=ExitCode.USAGE,
    )


def _remedy(port: Port, stored: Stored) -> str:
    rest = port.type.shape[1:]
    if len(stored.shape) == 2 and not rest and port.type.dtype.is_integer:
        return "labels are numbers of classes; of one-hot rows they are array.argmax(axis=1)"
    if stored.shape and math.prod(stored.shape[1:]) == math.prod(rest):
        return f"a row has as many elements: array.reshape({', '.join(map(str, (-1, *rest)))})"
    return "a program has the shapes it was built with; dlc build takes others with --dim and --input"
