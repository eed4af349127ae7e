"""What `dlc bench` prints, as text and as a JSON object, from the record of what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dlc.base.diagnostics import escape
from dlc.cli.terminal import columns, size, terminal_width

if TYPE_CHECKING:
    from dlc.record.record import MachineLimits, ProgramTimes, Record, Run, StepTimes

_LISTED: Final = 15
"""Steps that take longest: others are counted."""
_NAMED: Final = 3
"""Nodes of a step that are named."""


def bench_text(record: Record) -> str:
    """Programs, and below them the limits of the machine and the steps, for each number of threads."""
    runs = record.runs
    first, *others = runs
    heads = ["program", "median", "p10", "p90", "calls/s", "GFLOP/s", "of peak", "time", "max difference"]
    rows = [heads, *(_cells(r, program) for r in runs for program in r.programs)]
    if others:
        beside = [("threads", "gain"), *((str(r.threads), _times(p.gain)) for r in runs for p in r.programs)]
        rows = [[c[0], b[0], *c[1:8], b[1], c[8]] for c, b in zip(rows, beside, strict=True)]
    alone = len(runs) == len(first.programs) == 1
    count = first.programs[0].calls
    calls = f"{count:,} call{'s' * (count != 1)}" if alone else f"{count:,} calls of each, in turn"
    back = f"{calls}, back to back" if count != 1 else calls
    lines = [f"{escape(record.model)}: {back}", columns(rows, right=range(1, len(rows[0]) - 1))]
    lines += dict.fromkeys(f"{p.name}: {escape(p.reason)}" for r in runs for p in r.programs if p.reason)
    lines += _paused(runs)
    lines += [f"steps: not measured: {escape(first.no_steps)}"] * bool(first.no_steps)
    return "\n".join([*lines, *(_several_steps(runs) if others else _steps(first))])


def _cells(run: Run, program: ProgramTimes) -> list[str]:
    name = f"{program.name} {program.version}".strip()
    if program.median_ms is None or program.p10_ms is None or program.p90_ms is None:
        return [name, *["-"] * 8]
    first = program is run.programs[0]
    times = tuple(duration(t) for t in (program.median_ms, program.p10_ms, program.p90_ms))
    rate, part = (run.gflops, run.part_of_peak) if first else (None, None)
    differs = "" if first else _difference(program)
    per_second = 1000 / program.median_ms
    shown = f"{per_second:,.0f}" if program.median_ms < 100 else f"{per_second:.2f}"
    return [name, *times, shown, _giga(rate), _percent(part), _times(program.relative_time), differs]


def _paused(runs: Sequence[Run]) -> list[str]:
    """Programs that were called after a pause, for each number of threads."""
    found = [(r, p, p.after_pause) for r in runs for p in r.programs if p.after_pause]
    if not found:
        return []
    several = len(runs) > 1
    rows = [["program", *["threads"] * several, "median", "p10", "p90", "time", *["gain"] * several]]
    for run, p, t in found:
        times = (duration(x) for x in (t.median_ms, t.p10_ms, t.p90_ms))
        name, count, gain = f"{p.name} {p.version}".strip(), [str(run.threads)] * several, [_times(t.gain)] * several
        rows.append([name, *count, *times, _times(t.relative_time), *gain])
    calls = found[0][2].calls
    each = f" call{'s' * (calls != 1)}" if len(found) == 1 else " calls of each"
    head = f"{calls:,}{each}, {found[0][0].pause_ms or 0:g} ms after the last one"
    return ["", head, columns(rows, right=range(1, len(rows[0])))]


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _difference(program: ProgramTimes) -> str:
    if not program.outputs:
        return "not compared"
    worst = f"{max(float(d.max_abs) for d in program.outputs):.3g}"
    wrong = [escape(d.name) for d in program.outputs if not d.ok]
    return f"{worst} MISMATCH: {', '.join(wrong)}" if wrong else worst


def duration(milliseconds: float) -> str:
    """In milliseconds or, below one, in microseconds, with as many digits as mean something."""
    value, unit = (milliseconds, "ms") if milliseconds >= 1 else (milliseconds * 1000, "us")
    return f"{value:,.{2 if value < 10 else 1}f} {unit}"


def _limits(limits: MachineLimits, threads: str = "") -> str:
    reads = ", ".join(f"{m.name} {_giga(m.gbytes_per_second)}" for m in limits.memories)
    return f"limits of this machine{threads}, measured: {_giga(limits.gflops)} GFLOP/s; GB/s read from {reads}"


def _several_steps(runs: Sequence[Run]) -> list[str]:
    """Steps of the first number of threads, the slowest first, with their times on all."""
    lines = ["", *(_limits(r.limits, f", threads {r.threads}") for r in runs if r.limits)]
    if len(lines) == 1:
        return []
    first, *others = runs
    heads = [h for r in runs for h in (f"time, {r.threads}", "of limit")]
    rows = [("step", *heads, *(f"gain, {r.threads}" for r in others), "limit", "nodes")]
    slowest = sorted(first.steps, key=lambda s: -s.ms)
    for s in slowest[:_LISTED]:
        same = [next((x for x in r.steps if x.nodes == s.nodes), None) for r in runs]
        times = [c for x in same for c in ((duration(x.ms), _percent(x.part_of_limit)) if x else ("-", "-"))]
        gains = [_times(x.gain if x else None) for x in same[1:]]
        rows.append((str(s.step), *times, *gains, s.limit or "-", nodes(s.nodes)))
    lines += ["", columns(rows, right=range(len(rows[0]) - 2), width=terminal_width())]
    if rest := slowest[_LISTED:]:
        lines.append(f"and {len(rest):,} more, {_percent(sum(s.share for s in rest))} of the time")
    return lines


def _steps(run: Run) -> list[str]:
    if run.limits is None:
        return []
    lines = ["", _limits(run.limits)]
    slowest = sorted(run.steps, key=lambda s: -s.ms)
    rows = [("step", "time", "share", "MACs", "operations", "bytes", "GFLOP/s", "GB/s", "limit", "of limit", "nodes")]
    rows += [_step_cells(s) for s in slowest[:_LISTED]]
    lines += ["", columns(rows, right=(0, 1, 2, 3, 4, 5, 6, 7, 9), width=terminal_width())]
    if rest := slowest[_LISTED:]:
        share, time = sum(s.share for s in rest), sum(s.ms for s in rest)
        lines.append(f"and {len(rest):,} more, {_percent(share)} of the time ({duration(time)})")
    together, whole = sum(s.ms for s in run.steps), run.programs[0].median_ms or 0.0
    return [*lines, f"all steps: {duration(together)} of the {duration(whole)} of a call"]


def _step_cells(s: StepTimes) -> tuple[str, ...]:
    return (
        str(s.step),
        duration(s.ms),
        _percent(s.share),
        "-" if s.macs is None else f"{s.macs:,}",
        "-" if s.operations is None else f"{s.operations:,}",
        "-" if s.bytes is None else size(s.bytes),
        _giga(s.gflops),
        _giga(s.gbytes_per_second),
        s.limit or "-",
        _percent(s.part_of_limit),
        nodes(s.nodes),
    )


def nodes(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(escape, names[:_NAMED])) + more


def _giga(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def bench_json(record: Record) -> dict[str, Any]:
    """For programs: the record's run of the first number of threads, and by `others` those of each other one."""
    from dlc.record.to_json import to_json

    first, *others = ({"model": record.model, **to_json(run)} for run in record.runs)
    return {**first, "others": others}
