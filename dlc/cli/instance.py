"""`dlc plan FILE.csv`: buffers with lifetimes and sizes, from any source, without a model.

    id,lower,upper,size   →   id,lower,upper,size,offset

The format is that of MiniMalloc: a buffer is live at the steps [lower, upper), the bytes of its size.
"""

from __future__ import annotations

import csv
import io
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dlc.base.diagnostics import DlcError, ExitCode, error, escape
from dlc.base.report import Report
from dlc.passes.memory_limit import beyond_limit
from dlc.placement import Buffer, Placement, check_placement
from dlc.placement.allocator import LARGEST

if TYPE_CHECKING:
    from dlc.html.plan import View
    from dlc.passes.plan_memory import PlanMemory

_NEEDED: Final = ("id", "lower", "upper", "size")
_ALSO: Final = ("alignment", "fixed", "offset")
_REFUSED: Final = {"gaps": "lifetimes with gaps", "hint": "hints"}
"""Columns of MiniMalloc's that mean something which plans here do not have."""
_SHOWN: Final = 5
"""Lines with faults that are listed."""
_NUMBER: Final = re.compile(r"\d{1,20}")


@dataclass(frozen=True)
class Bare:
    """What a file says."""

    names: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    """Their ids are positions in `names`."""
    align: int
    """Bytes: what the column `alignment` asks for."""


def read(path: Path) -> Bare:
    """The buffers of a file.

    Raises:
        DlcError: (USAGE) it cannot be read, or is no such file: with the lines at fault.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise _bad(path, f"it cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise _bad(path, f"byte {problem.start} is no UTF-8 text") from None
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    faults: list[str] = []
    names: dict[str, int] = {}
    buffers: list[Buffer] = []
    aligns: set[int] = {1}
    try:
        columns = _columns(path, next(rows, list[str]()))
        for row in rows:
            if not row:
                continue
            try:
                name, buffer, align = _buffer(row, columns, len(buffers))
                if name in names:
                    raise _Fault(f"id {name} is that of line {names[name]} too")
                names[name] = rows.line_num
                buffers.append(buffer)
                aligns.add(align)
            except _Fault as fault:
                faults.append(f"line {rows.line_num}: {fault}")
    except csv.Error as problem:
        raise _bad(path, f"line {rows.line_num}: {problem}") from None
    if faults:
        more = [f"{len(faults) - _SHOWN} more lines"] if len(faults) > _SHOWN else []
        many = f"{len(faults)} lines are" if len(faults) > 1 else "a line is"
        raise _bad(path, f"{many} not as the header says", [*faults[:_SHOWN], *more])
    return Bare(tuple(names), tuple(buffers), math.lcm(*aligns))


class _Fault(Exception):
    """What is wrong in a line."""


def _columns(path: Path, header: Sequence[str]) -> Mapping[str, int]:
    """Column → position."""
    names = [name.strip() for name in header]
    if missing := [name for name in _NEEDED if name not in names]:
        raise _bad(path, f"line 1: the header has no column {', '.join(missing)}")
    for name in names:
        if name in _REFUSED:
            raise _bad(path, f"line 1: {_REFUSED[name]} (column {name}) are not supported")
        if name not in (*_NEEDED, *_ALSO):
            raise _bad(path, f"line 1: there is no column {_quoted(name)}")
        if names.count(name) > 1:
            raise _bad(path, f"line 1: column {name} stands there twice")
    return {name: k for k, name in enumerate(names)}


def _buffer(row: Sequence[str], columns: Mapping[str, int], number: int) -> tuple[str, Buffer, int]:
    """(id, buffer, alignment) of a line."""
    if len(row) != len(columns):
        raise _Fault(f"{len(row)} fields instead of {len(columns)}")
    name = row[columns["id"]].strip()
    if not name:
        raise _Fault("id is empty")
    lower, upper, size = (_number(row, columns, key) for key in ("lower", "upper", "size"))
    align = _number(row, columns, "alignment") if "alignment" in columns else 1
    if upper <= lower:
        raise _Fault(f"upper {upper} is not above lower {lower}")
    if not 1 <= align <= 1 << 30:
        raise _Fault(f"alignment {align} is not from 1 to {1 << 30}")
    given = "fixed" in columns and row[columns["fixed"]].strip()
    fixed = _number(row, columns, "fixed") if given else None
    return escape(name), Buffer(number, size, lower, upper, fixed), align


def _number(row: Sequence[str], columns: Mapping[str, int], key: str) -> int:
    text = row[columns[key]].strip()
    if not _NUMBER.fullmatch(text) or not text.isascii():
        raise _Fault(f"{key} {_quoted(text)} is not a whole number of at least 0")
    if int(text) > LARGEST:
        raise _Fault(f"{key} {text} is above {LARGEST}")
    return int(text)


def _quoted(text: str) -> str:
    return '"' + escape(text if len(text) <= 32 else text[:31] + "…") + '"'


def _bad(path: Path, what: str, notes: Sequence[str] = ()) -> DlcError:
    return error(
        "bad-instance",
        f"{escape(str(path))}: {what}",
        notes=notes,
        help="the first line is id,lower,upper,size, every other one a buffer that is live at the steps [lower, upper)",
        exit_code=ExitCode.USAGE,
    )


@dataclass(frozen=True)
class Planned:
    """A placement of what a file says, and how long it took."""

    bare: Bare
    placement: Placement
    seconds: float
    report: Report

    @property
    def optimal(self) -> str:
        """What is proven, in words."""
        p = self.placement
        if p.proven:
            return "optimal"
        return "not proven optimal" + (f": {p.floor:,} B is not disproved" if p.floor > p.bound else "")

    def text(self) -> str:
        """The figures for people."""
        p = self.placement
        return (
            f"{len(self.bare.buffers):,} buffers: arena {p.arena:,} B, lower bound {p.bound:,} B "
            f"at step {p.bound_step}, overhead {100 * p.gap:.2f} %, {self.optimal}\n"
            f"by {p.method}, {self.seconds:.2f} s"
        )

    def document(self) -> dict[str, Any]:
        """The figures for programs."""
        p = self.placement
        return {
            "buffers": len(self.bare.buffers),
            "arena_bytes": p.arena,
            "bound_bytes": p.bound,
            "bound_step": p.bound_step,
            "floor_bytes": p.floor,
            "overhead_percent": f"{100 * p.gap:.2f}",
            "optimal": p.proven,
            "stopped": p.late,
            "method": p.method,
            "seconds": round(self.seconds, 3),
            "offsets": dict(zip(self.bare.names, p.offsets, strict=True)),
        }

    def csv(self) -> str:
        """The buffers with their offsets."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*_NEEDED, "offset"])
        for name, b, offset in zip(self.bare.names, self.bare.buffers, self.placement.offsets, strict=True):
            writer.writerow([name, b.birth, b.death, b.size, offset])
        return out.getvalue()

    def view(self, strategy: str = "") -> View:
        """The picture of the memory over time."""
        from dlc.html.memory import Held, drawn
        from dlc.html.plan import View

        bare, p = self.bare, self.placement
        held = [
            Held(name, "buffer", b.birth, b.death, offset, b.size)
            for name, b, offset in zip(bare.names, bare.buffers, p.offsets, strict=True)
        ]
        picture = drawn(held, memory=(0, p.arena), bound=p.bound)
        unshared = sum(b.size for b in bare.buffers)
        return View("", strategy, len(held), p.arena, p.bound, p.proven, unshared, p.method, self.seconds, picture)


def plan_instance(bare: Bare, stage: PlanMemory) -> Planned:
    """Offsets for what a file says, by the options of a pass `plan-memory`; its limit is left to `check_limit`."""
    report = Report()
    stage = stage.changed(align=math.lcm(stage.align, bare.align))
    _check_fixed(bare, stage.align)
    begin = time.perf_counter()
    placement = stage.placed(bare.buffers, report)
    return Planned(bare, placement, time.perf_counter() - begin, report)


def _check_fixed(bare: Bare, align: int) -> None:
    """Raise DlcError (USAGE) where fixed offsets are no multiples of the alignment, or fixed buffers meet."""
    fixed = [b for b in bare.buffers if b.fixed is not None]
    skew = [b for b in fixed if b.fixed is not None and b.fixed % align]
    if skew:
        what = f"{bare.names[skew[0].id]} is fixed at {skew[0].fixed}, no multiple of {align}"
    elif faults := check_placement(fixed, [b.fixed or 0 for b in fixed], align):
        what = re.sub(r"\b(?:buffers )?(\d+)(?= and | share )", lambda m: bare.names[int(m[1])], faults[0])
    else:
        return
    raise error("bad-instance", f"fixed offsets: {what}", help="change the column fixed", exit_code=ExitCode.USAGE)


def check_limit(planned: Planned, limit: int) -> None:
    """Raise DlcError (LIMIT) where the arena is larger, with what is known of smaller ones."""
    p = planned.placement
    if p.arena <= limit:
        return
    raise beyond_limit(
        p,
        limit,
        given="with these lifetimes",
        at_peak=_largest(planned),
        smaller="shorten lifetimes or sizes at the peak",
        search="--strategy auto, or a larger --work",
    )


def _largest(planned: Planned) -> Iterator[str]:
    """The largest buffers at the peak."""
    step = planned.placement.bound_step
    live = [b for b in planned.bare.buffers if b.birth <= step < b.death]
    yield f"the peak is at step {step}, where {len(live)} buffers are live"
    for b in sorted(live, key=lambda b: -b.size)[:_SHOWN]:
        yield f"in use there: {planned.bare.names[b.id]}, {b.size} bytes, steps {b.birth} to {b.death - 1}"
