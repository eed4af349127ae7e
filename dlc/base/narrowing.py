"""What a type cannot hold: values that become infinite, that become 0, and that lose digits, where they are stored.

    100000.0 in f16 → inf        1e-9 in f16 → 0        3e-6 in f16 → a multiple of 2⁻²⁴

A pass or backend that stores values of a model in another type converts them by `narrowed`; a backend that converts
what it is given declares it (`Backend.stores`). Either way a build warns of each tensor that lost something which
matters.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dlc.base.diagnostics import Diagnostic, Location, quote
from dlc.base.report import Report
from dlc.base.types import Array, DType, in_compute_type

CODE: Final = "value-range"
_SHOWN: Final = 8
"""Tensors with a warning of their own; those beyond are named in one more."""
_NAMED: Final = 20
"""Tensors that this one names."""
_PERCENT: Final = 1
"""Share of the values that are not 0 which may become 0 without a warning: a normal distribution has such."""
HELP: Final = (
    "scale them by a power of two, and what follows by its inverse; or clip them; "
    "or build for a target that stores them as they are, as c"
)


@dataclass(frozen=True)
class Loss:
    """What a type cannot hold of some values. Magnitudes are those of the values before."""

    dtype: DType
    count: int
    """Of all values."""
    clipped: int = 0
    """Too large: they become infinite, NaN or the largest value, as the type has it."""
    largest: float = 0.0
    flushed: int = 0
    """They become 0."""
    subnormal: int = 0
    """They have fewer digits than the type's others."""
    smallest: float = 0.0
    """The smallest that is not 0."""
    matters: bool = True
    """Whether more is lost than the few values next to 0 that every distribution has."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """`3 of 64 values are too large for f16, which holds up to 65504: the largest is 1e+05`, and so on."""
        top, normal, least = _limits(self.dtype)
        if self.count == 1:
            return (self._one(top, normal, least),)
        several = f"of {self.count:,} values"
        found: list[str] = []
        if self.clipped:
            found.append(
                f"{self.clipped:,} {several} {_are(self.clipped)} too large for {self.dtype}, which holds up to "
                f"{top:.6g}: the largest is {self.largest:.6g}"
            )
        if self.flushed:
            verb = "becomes" if self.flushed == 1 else "become"
            found.append(
                f"{self.flushed:,} {several} {verb} 0 in {self.dtype}, whose smallest is {least:.3g}: the smallest "
                f"that is not 0 is {self.smallest:.6g}"
            )
        if self.subnormal:
            verb = "loses" if self.subnormal == 1 else "lose"
            found.append(f"{self.subnormal:,} {several} {verb} digits in {self.dtype}, as they are below {normal:.3g}")
        return tuple(found)

    def _one(self, top: float, normal: float, least: float) -> str:
        if self.clipped:
            return f"{self.largest:.6g} is too large for {self.dtype}, which holds up to {top:.6g}"
        if self.flushed:
            return f"{self.largest:.6g} becomes 0 in {self.dtype}, whose smallest value is {least:.3g}"
        return f"{self.largest:.6g} loses digits in {self.dtype}, as it is below {normal:.3g}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def loss_of(values: Array, dtype: DType) -> Loss | None:
    """What is lost of values, or None. NaN and infinities among them are what they were.

    Args:
        values: Numbers of any type.
        dtype: A type that holds them afterwards.
    """
    wide = in_compute_type(np.asarray(values))
    if not wide.size or wide.dtype.kind not in "fiu" or dtype.kind == "bool":
        return None
    if not dtype.is_float:
        return _integer_loss(wide, dtype)
    top, normal, _ = _limits(dtype)
    with np.errstate(all="ignore"):
        magnitude = np.abs(wide if wide.dtype.kind == "f" else wide.astype(np.float64))
        small = (magnitude < normal) & (magnitude > 0)
        if not small.any() and not (magnitude > top).any():
            return None
        stored = np.abs(in_compute_type(magnitude.astype(dtype.numpy)))
        finite = np.isfinite(magnitude)
        clipped = finite & (magnitude > top) & (~np.isfinite(stored) | (dtype.extremes[1] <= top))
        flushed = small & (stored == 0)
        lost = small & (stored != 0) & (stored.astype(magnitude.dtype) != magnitude) & (stored < normal)
    some = magnitude[finite & (magnitude > 0)]
    counts = [int(np.count_nonzero(mask)) for mask in (clipped, flushed, lost)]
    if not any(counts):
        return None
    largest = float(some.max())
    matters = counts[0] > 0 or counts[1] * 100 >= some.size * _PERCENT or (counts[2] > 0 and largest < normal)
    return Loss(dtype, wide.size, counts[0], largest, counts[1], counts[2], float(some.min()), matters)


def _integer_loss(values: Array, dtype: DType) -> Loss | None:
    """Values outside of the range of an integer type; fractions that are cut off are not counted."""
    low, high = dtype.limits
    with np.errstate(all="ignore"):
        outside = np.isfinite(values) & ((values < low) | (values > high))
    count = int(np.count_nonzero(outside))
    return Loss(dtype, values.size, count, float(np.abs(values[outside].astype(np.float64)).max())) if count else None


def _limits(dtype: DType) -> tuple[float, float, float]:
    """The largest finite value, the smallest normal one, the smallest positive one."""
    if (of := dtype.format) is not None:
        return of.largest, max(2.0 ** (1 - of.bias), of.smallest), of.smallest
    if not dtype.is_float:
        return float(dtype.limits[1]), 0.0, 0.0
    found = np.finfo(dtype.numpy)  # type: ignore[arg-type]
    return float(found.max), float(found.smallest_normal), float(found.smallest_subnormal)


@dataclass(frozen=True)
class Stored:
    """A conversion that lost something."""

    of: Any
    """What the values are of: an op of the model, or anything that `Record.tell` is given names for."""
    part: str
    """What they are of it, as "1/std"; "" where they are all of it."""
    result: Array
    """Everything that was converted together with them."""
    loss: Loss


@dataclass
class Record:
    """Conversions that lost something, in order."""

    found: list[Stored] = field(default_factory=list[Stored])

    def tell(self, report: Report, name: Callable[[Any], tuple[str, Sequence[str]]], target: str = "") -> None:
        """Warn of each tensor once.

        Args:
            report: Of the step.
            name: Of what something is (`Stored.of`) the tensor's name and the nodes that it belongs to.
            target: What stores them, for messages.
        """
        told: dict[tuple[str, str], Diagnostic] = {}
        for each in self.found:
            tensor, nodes = name(each.of)
            if (tensor, each.part) in told:
                continue
            if each.loss.matters:
                told[tensor, each.part] = _warning(tensor, each, nodes, target)
            else:
                report.missed(" ".join(filter(None, (each.part, tensor))), "; ".join(each.loss.sentences))
        for diagnostic in list(told.values())[:_SHOWN]:
            report.warn(diagnostic)
        if beyond := [quote(tensor) + (f" ({part})" if part else "") for tensor, part in list(told)[_SHOWN:]]:
            report.warn(_others(beyond, target))
        if told:
            report.count("tensors with values out of range", len(told))


def _warning(tensor: str, each: Stored, nodes: Sequence[str], target: str) -> Diagnostic:
    what = f"{each.part} of {quote(tensor)}" if each.part else quote(tensor)
    first, *others = each.loss.sentences
    where = Location(node=nodes[0]) if nodes else None
    message = f"{what}{f', as {target} stores it' if target else ''}: {first}"
    return Diagnostic(CODE, message, "warning", where, tuple(others), HELP, nodes=tuple(nodes[1:]) and tuple(nodes))


def _others(names: Sequence[str], target: str) -> Diagnostic:
    beyond = len(names) - _NAMED
    listed = ", ".join(names[:_NAMED]) + (f" and {beyond} more" if beyond > 0 else "")
    one = len(names) == 1
    message = f"{len(names):,} more {'tensor has' if one else 'tensors have'} values out of the range of "
    return Diagnostic(CODE, f"{message}{target or 'their types'}", "warning", notes=(listed,), help=HELP)


_RECORD: Final[ContextVar[Record | None]] = ContextVar("narrowing", default=None)


@contextmanager
def recording() -> Generator[Record]:
    """What conversions by `narrowed` lose inside."""
    record = Record()
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


def narrowed(values: Array, dtype: DType, of: Any = None, parts: Iterable[str] = ()) -> Array:
    """Values in a type of storage, rounded to nearest, halves to even; what is lost is recorded (`recording`).

    Args:
        values: Any numbers.
        dtype: The type.
        of: What they are of, for messages.
        parts: What each item of the first dimension is, where these are different things.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = np.asarray(values).astype(dtype.numpy)
    if (record := _RECORD.get()) is not None and of is not None:
        named = tuple(parts)
        rows = zip(named, values, strict=True) if named else (("", values),)
        for part, row in rows:
            if (loss := loss_of(row, dtype)) is not None:
                record.found.append(Stored(of, part, result, loss))
    return result
