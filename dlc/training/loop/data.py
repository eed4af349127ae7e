"""`DataSet`: rows of what a training program takes, checked before the first step.

The first dimension of every array counts rows; a batch of the program is so many of them. An argument whose first
dimension is a multiple of the first argument's, such as the labels of every word of a text, has several for each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, did_you_mean, error, quote
from dlc.base.types import Array
from dlc.training.loop.arrays import Stored, stored_arrays
from dlc.training.loop.columns import Column, column

if TYPE_CHECKING:
    from dlc.api.program import Port

_BLOCK = 1 << 22
"""Bytes that are looked at together."""


@dataclass(frozen=True)
class DataSet:
    """Rows to train with or to judge by."""

    columns: tuple[Column, ...]
    """One for each argument of the program, in its order."""
    rows: int
    digest: str
    """SHA-256 of all arrays, in hexadecimal."""
    notes: tuple[Diagnostic, ...] = ()
    """What was done to the arrays."""
    chosen: Array | None = field(default=None, repr=False)
    """Numbers of the rows that belong to it, i64; None: all."""

    def batch(self, index: Array) -> dict[str, Array]:
        """Arrays by argument of the rows with these numbers, exactly of the types that the program takes."""
        index = index if self.chosen is None else self.chosen[index]
        return {c.port.name: c.take(index) for c in self.columns}

    def split(self, chosen: Array) -> DataSet:
        """Some of the rows."""
        return DataSet(self.columns, len(chosen), self.digest, (), chosen)


def batch_size(arguments: Sequence[Port]) -> int:
    """Rows of a batch: the first dimension of the first argument.

    Raises:
        DlcError: an argument has no dimension for rows.
    """
    size = arguments[0].type.shape[0] if arguments[0].type.rank else 0
    for port in arguments:
        if not size or not port.type.rank or port.type.shape[0] % size or not port.type.shape[0]:
            expected = ", ".join(f"{quote(p.name)} {p.type}" for p in arguments)
            raise error(
                "no-batches",
                f"the program takes no batches of rows: {expected}",
                help="the first dimension of every input must count the rows of a batch",
            )
    return size


def read_data(files: Sequence[str], arguments: Sequence[Port], *, checked: bool = True) -> DataSet:
    """The data set in files, every value checked.

    Args:
        files: `FILE.npz` or `NAME=FILE.npy`.
        arguments: What the program takes, the labels last, with what indices and labels may be.
        checked: False where another process looks at the values: only headers are read, and the digest is "".

    Raises:
        DlcError: (USAGE) with everything that does not fit: arrays that are missing, of another shape or of a type
            that cannot be converted safely, of different numbers of rows, NaN, indices and labels that are none.
    """
    size, names = batch_size(arguments), [p.name for p in arguments]
    stored = stored_arrays(files, names)
    problems = [d for p in arguments if p.name not in stored for d in _missing(p, stored, names, files)]
    columns: list[Column] = []
    notes: list[Diagnostic] = _unused(stored, names)
    for port in arguments:
        if port.name in stored:
            try:
                found, more = column(port, stored[port.name], size)
                columns.append(found)
                notes += more
            except DlcError as problem:
                if problem.exit_code != ExitCode.USAGE:
                    raise
                problems += problem.diagnostics
    problems += _uneven(columns)
    if problems:
        raise DlcError(*problems, exit_code=ExitCode.USAGE)
    if not checked:
        return DataSet(tuple(columns), columns[0].rows, "", tuple(notes))
    h = sha256()
    for c in columns:
        h.update(f"{c.port.name}\0{c.port.type}\0{c.array.dtype}\0{c.array.shape}\0".encode())
        wrong, more = _scan(c, h)
        problems += wrong
        notes += more
    if problems:
        raise DlcError(*problems, exit_code=ExitCode.USAGE)
    return DataSet(tuple(columns), columns[0].rows, h.hexdigest(), tuple(notes))


def _missing(
    port: Port, stored: Mapping[str, Stored], names: Sequence[str], files: Sequence[str]
) -> tuple[Diagnostic, ...]:
    free = [name for name in stored if name not in names]
    return error(
        "missing-array",
        f"there is no array {quote(port.name)} of {port.type} batches in {', '.join(files)}",
        help=did_you_mean(port.name, free, "other arrays that are there")
        + f"; numpy.savez(FILE, **{{{quote(port.name)}: array, …}}) names arrays",
    ).diagnostics


def _unused(stored: Mapping[str, Stored], names: Sequence[str]) -> list[Diagnostic]:
    return [
        Diagnostic("unused-array", f"{s.place} is not used: the program has no input of this name", "note")
        for name, s in stored.items()
        if name not in names
    ]


def _uneven(columns: Sequence[Column]) -> tuple[Diagnostic, ...]:
    """The complaint if columns have different numbers of rows, or none."""
    counts = ", ".join(f"{quote(c.port.name)} has {c.rows:,}" for c in columns)
    if len({c.rows for c in columns}) > 1:
        help = "row k of every array belongs to example k: leave out those that are not in all"
        return error("different-rows", f"arrays have different numbers of rows: {counts}", help=help).diagnostics
    if columns and not columns[0].rows:
        return error("no-rows", f"there are no rows: {counts}").diagnostics
    return ()


def _scan(c: Column, h: Any) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(errors, notes) about the values of a column, at most one of each kind; its content is added to the digest."""
    wrong: dict[str, Diagnostic] = {}
    notes: dict[str, Diagnostic] = {}
    for first, block in _blocks(c.array):
        h.update(np.ascontiguousarray(block).view(np.uint8).data if block.size else b"")
        checks = [("not-a-number", _nan(block), "is not a number"), ("bad-value", c.lost(block), c.losing)]
        checks += _out_of_range(c.port, block)
        for code, bad, why in checks:
            if code not in wrong and bad is not None and bad.any():
                wrong[code] = _at(c, first, block, bad, code, why)
        if "infinite" not in notes and block.dtype.kind == "f" and (bad := np.isinf(block)).any():
            notes["infinite"] = _at(c, first, block, bad, "infinite", "may make the loss infinite", "warning")
    return list(wrong.values()), list(notes.values())


def _out_of_range(port: Port, block: Array) -> Iterator[tuple[str, Array, str]]:
    """(code, which elements, why) of what the program would refuse, whichever batch the rows come into.

    What depends on the place in a batch is left to the step.
    """
    if port.allowed is None:
        return
    for part in port.allowed.parts:
        if part.box and part.box[0] != (0, port.type.shape[0]):
            continue
        rows = (slice(None), *part.slices[1:])
        if (bad := part.wrong(block[rows])) is not None:
            found = np.zeros(block.shape, np.bool_)
            found[rows] = bad
            code, why = port.allowed.refusal(part)
            yield code, found, why


def _blocks(array: Array) -> Iterator[tuple[int, Array]]:
    """(number of the first row, rows)."""
    step = max(1, _BLOCK // max(1, array[:1].nbytes))
    for k in range(0, len(array), step):
        yield k, array[k : k + step]


def _nan(block: Array) -> Array | None:
    return np.isnan(block) if block.dtype.kind == "f" else None


def _at(c: Column, first: int, block: Array, bad: Array, code: str, why: str, severity: str = "error") -> Diagnostic:
    """The first bad value, with its place."""
    place = np.unravel_index(int(np.argmax(bad)), bad.shape)
    row = (first + int(place[0])) // c.per
    index = f"[{', '.join(str(int(k)) for k in (first + int(place[0]), *place[1:]))}]"
    value = block[place].item()
    more = int(np.count_nonzero(bad)) - 1
    also = f"; {more:,} more nearby" if more else ""
    return Diagnostic(
        code,
        f"{quote(c.port.name)}, row {row:,}: {value} at {index} {why}{also}",
        severity,
        Location(c.place),
        help="" if severity == "warning" else "rows count from 0; correct or remove them",
    )
