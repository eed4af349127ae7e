"""What `dlc tune` prints, as text and as a JSON object."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dlc.base.diagnostics import ExitCode, escape
from dlc.cli.bench_text import duration
from dlc.cli.terminal import columns, terminal_width

if TYPE_CHECKING:
    from dlc.api.tuning import Fingerprint, Record
    from dlc.tune.kernels import ProgramKernel
    from dlc.tune.tuning import Progress

_NAMED: Final = 2
"""Nodes of a kernel that are named."""
_DIGITS: Final = 16
"""Of a digest."""


@dataclass(frozen=True)
class Report:
    """Everything that a run of `dlc tune` found."""

    kernels: Sequence[ProgramKernel]
    """That it was to tune."""
    records: Sequence[Record]
    progress: Progress
    known: Collection[str]
    """Kernels whose records the cache had."""
    here: Fingerprint
    left: Sequence[tuple[str, str]]
    """Kernels that cannot be measured, and why."""
    notes: Sequence[str]
    output: Path | None

    @property
    def code(self) -> int:
        """MISMATCH for schedules with other results, INTERRUPTED where the user ended it."""
        if any(t.wrong for t in self.progress.tuned.values()):
            return ExitCode.MISMATCH
        return ExitCode.INTERRUPTED if self.progress.interrupted else ExitCode.OK

    @property
    def unreached(self) -> int:
        """Kernels for which there was no time."""
        return len(self.kernels) - len(self.records) - len(self.progress.failed)

    @property
    def gain(self) -> float | None:
        """Time of the default schedules in units of the tuned ones', geometric mean over kernels."""
        ratios = [math.log(r.ratio) for r in self.records if r.ratio]
        return math.exp(-sum(ratios) / len(ratios)) if ratios else None

    def calls(self, record: Record) -> int:
        """Steps that call a kernel."""
        return next(k.calls for k in self.kernels if k.digest == record.kernel)

    @property
    def seconds(self) -> tuple[float, float]:
        """(of all calls with default schedules, with tuned ones)."""
        calls = [(r, self.calls(r)) for r in self.records]
        return sum(r.default_ns * n for r, n in calls) / 1e9, sum(r.tuned_ns * n for r, n in calls) / 1e9


def tune_text(report: Report) -> str:
    """A table of kernels, the slowest first, and what there is to say beside."""
    whole = report.seconds[0] or 1.0
    ranked = sorted(report.records, key=lambda r: (-r.default_ns * report.calls(r), r.kernel))
    rows = [("kernel", "calls", "share", "default", "tuned", "ratio", "nodes", "schedule")]
    rows += [_row(r, report.calls(r), r.default_ns * report.calls(r) / 1e9 / whole) for r in ranked]
    lines = [columns(rows, right=range(1, 6), width=terminal_width())] if ranked else []
    lines += _sums(report)
    lines += [f"{d[:_DIGITS]}: not measured: {escape(why)}" for d, why in report.left]
    lines += [f"{d[:_DIGITS]}: {escape(why)}" for d, why in sorted(report.progress.failed.items())]
    for digest, tuned in sorted(report.progress.tuned.items()):
        lines += [f"{digest[:_DIGITS]}: OTHER RESULTS with {s}: please report it" for s in tuned.wrong]
        lines += [f"{digest[:_DIGITS]}: {s} cannot be built: {escape(why)}" for s, why in tuned.failed]
    lines += map(escape, report.notes)
    places = sorted({r.fingerprint for r in report.records})
    lines += [f"measured on {escape(str(f))}" for f in places]
    if any(f != report.here for f in places):
        lines.append(f"this computer is {escape(str(report.here))}: records of others are kept apart")
    where = f"{escape(str(report.output))}: {len(report.records)} records" if report.output else "in the cache"
    return "\n".join([*lines, f"records: {where}" if not report.output else where])


def _row(record: Record, calls: int, share: float) -> tuple[str, ...]:
    more = len(record.nodes) - _NAMED
    nodes = " ".join(record.nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    same = record.schedule == record.default
    return (
        record.kernel[:_DIGITS],
        str(calls),
        f"{share:.1%}",
        duration(record.default_ns / 1e6),
        duration(record.tuned_ns / 1e6),
        f"{1 / record.ratio:.2f}x" if record.ratio else "-",
        escape(nodes),
        "default" if same else record.schedule,
    )


def _sums(report: Report) -> list[str]:
    new, default = len(report.progress.tuned), sum(r.schedule == r.default for r in report.records)
    count = len(report.records)
    lines = [f"{count} of {len(report.kernels)} kernels: {new} measured, {len(report.known)} known from the cache"]
    if report.unreached > 0:
        why = "interrupted" if report.progress.interrupted else "--budget is spent"
        lines[0] += f"; {report.unreached} not reached: {why}"
    gain = report.gain
    if gain is not None:
        before, after = report.seconds
        lines.append(
            f"default schedules are the fastest for {default} of {count}; the others' tuned ones take the mean to "
            f"{gain:.3f}x; all calls {duration(before * 1000)}, tuned {duration(after * 1000)}"
        )
    return lines


def tune_json(report: Report) -> dict[str, Any]:
    """The same for programs."""
    tuned = report.progress.tuned
    return {
        "fingerprint": _fingerprint(report.here),
        "kernels": [
            {
                "kernel": r.kernel,
                "nodes": list(r.nodes),
                "calls": report.calls(r),
                "schedule": r.schedule,
                "default": r.default,
                "cycles": r.cycles,
                "default_ns": r.default_ns,
                "tuned_ns": r.tuned_ns,
                "fingerprint": _fingerprint(r.fingerprint),
                "measured": tuned[r.kernel].measured if r.kernel in tuned else 0,
                "wrong": list(tuned[r.kernel].wrong) if r.kernel in tuned else [],
            }
            for r in sorted(report.records, key=lambda r: (r.kernel, r.fingerprint))
        ],
        "not_measured": [{"kernel": d, "reason": why} for d, why in (*report.left, *report.progress.failed.items())],
        "not_reached": report.unreached,
        "interrupted": report.progress.interrupted,
        "notes": list(report.notes),
        "output": str(report.output) if report.output else None,
    }


def _fingerprint(found: Fingerprint) -> dict[str, str]:
    return {"id": found.id, "machine": found.machine, "compiler": found.compiler, "processor": found.processor}
