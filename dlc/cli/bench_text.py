"""What `dlc bench` prints, as text and as a JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dlc.base.diagnostics import escape
from dlc.cli.terminal import columns, json_number, size, terminal_width

if TYPE_CHECKING:
    from dlc.api.profile import Limits
    from dlc.bench.result import Result, Row
    from dlc.bench.steps import Measured

_LISTED: Final = 15
"""Steps that take longest: others are counted."""
_NAMED: Final = 3
"""Nodes of a step that are named."""


def bench_text(results: Sequence[Result]) -> str:
    """Programs, and below them the limits of the machine and the steps, for each number of threads."""
    first, *others = results
    heads = ["program", "median", "p10", "p90", "calls/s", "GFLOP/s", "of peak", "time", "max difference"]
    rows = [heads, *(_cells(r, row) for r in results for row in r.rows)]
    if others:
        beside = [
            ("threads", "gain"),
            *((str(r.threads), _times(r.gain(first, row))) for r in results for row in r.rows),
        ]
        rows = [[c[0], b[0], *c[1:8], b[1], c[8]] for c, b in zip(rows, beside, strict=True)]
    alone = len(results) == len(first.rows) == 1
    calls = _calls(first) if alone else f"{len(first.own.seconds):,} calls of each, in turn"
    lines = [f"{escape(first.model)}: {calls}", columns(rows, right=range(1, len(rows[0]) - 1))]
    lines += dict.fromkeys(f"{row.name}: {escape(row.reason)}" for r in results for row in r.rows if row.reason)
    lines += [f"steps: not measured: {escape(first.no_steps)}"] * bool(first.no_steps)
    return "\n".join([*lines, *(_several_steps(results) if others else _steps(first))])


def _calls(result: Result) -> str:
    count = len(result.own.seconds)
    return f"{count:,} call{'s' * (count != 1)}"


def _cells(result: Result, row: Row) -> list[str]:
    name = f"{row.name} {row.version}".strip()
    if row.times is None:
        return [name, *["-"] * 8]
    first = row is result.rows[0]
    times = tuple(duration(t) for t in (row.times.median, row.times.p10, row.times.p90))
    rate, part = (result.rate, result.part_of_peak) if first else (None, None)
    differs = "" if first else _difference(row)
    per_second = f"{1000 / row.times.median:,.0f}" if row.times.median < 100 else f"{1000 / row.times.median:.2f}"
    return [name, *times, per_second, _giga(rate), _percent(part), _times(result.relative(row)), differs]


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _difference(row: Row) -> str:
    if not row.differences:
        return "not compared"
    worst = f"{max(d.max_abs for d in row.differences):.3g}"
    wrong = [escape(d.name) for d in row.differences if not d.ok]
    return f"{worst} MISMATCH: {', '.join(wrong)}" if wrong else worst


def duration(milliseconds: float) -> str:
    """In milliseconds or, below one, in microseconds, with as many digits as mean something."""
    value, unit = (milliseconds, "ms") if milliseconds >= 1 else (milliseconds * 1000, "us")
    return f"{value:,.{2 if value < 10 else 1}f} {unit}"


def _limits(limits: Limits, threads: str = "") -> str:
    reads = ", ".join(f"{m.name} {_giga(m.rate)}" for m in limits.memories)
    return f"limits of this machine{threads}, measured: {_giga(limits.operations)} GFLOP/s; GB/s read from {reads}"


def _several_steps(results: Sequence[Result]) -> list[str]:
    """Steps of the first number of threads, the slowest first, with their times on all."""
    lines = ["", *(_limits(r.limits, f", threads {r.threads}") for r in results if r.limits)]
    if len(lines) == 1:
        return []
    first, *others = results
    heads = [h for r in results for h in (f"time, {r.threads}", "of limit")]
    rows = [("step", *heads, *(f"gain, {r.threads}" for r in others), "limit", "nodes")]
    slowest = sorted(first.steps, key=lambda s: -s.seconds)
    for s in slowest[:_LISTED]:
        same = [next((x for x in r.steps if x.work.nodes == s.work.nodes), None) for r in results]
        times = [c for x in same for c in ((duration(x.seconds * 1000), _percent(x.part)) if x else ("-", "-"))]
        gains = [_times(r.step_gain(first, x) if x else None) for r, x in zip(others, same[1:], strict=True)]
        rows.append((str(s.work.number), *times, *gains, s.limit or "-", nodes(s.work.nodes)))
    lines += ["", columns(rows, right=range(len(rows[0]) - 2), width=terminal_width())]
    if rest := slowest[_LISTED:]:
        lines.append(f"and {len(rest):,} more, {_percent(sum(s.share for s in rest))} of the time")
    return lines


def _steps(result: Result) -> list[str]:
    if result.limits is None:
        return []
    lines = ["", _limits(result.limits)]
    slowest = sorted(result.steps, key=lambda s: -s.seconds)
    rows = [("step", "time", "share", "operations", "bytes", "GFLOP/s", "GB/s", "limit", "of limit", "nodes")]
    rows += [_step_cells(s) for s in slowest[:_LISTED]]
    lines += ["", columns(rows, right=(0, 1, 2, 3, 4, 5, 6, 8), width=terminal_width())]
    if rest := slowest[_LISTED:]:
        share, time = sum(s.share for s in rest), sum(s.seconds for s in rest) * 1000
        lines.append(f"and {len(rest):,} more, {_percent(share)} of the time ({duration(time)})")
    together = sum(s.seconds for s in result.steps) * 1000
    return [*lines, f"all steps: {duration(together)} of the {duration(result.own.median)} of a call"]


def _step_cells(s: Measured) -> tuple[str, ...]:
    work = s.work
    return (
        str(work.number),
        duration(s.seconds * 1000),
        _percent(s.share),
        "-" if work.operations is None else f"{work.operations:,}",
        "-" if work.bytes is None else size(work.bytes),
        _giga(s.operations_rate),
        _giga(s.bytes_rate),
        s.limit or "-",
        _percent(s.part),
        nodes(work.nodes),
    )


def nodes(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(escape, names[:_NAMED])) + more


def _giga(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e9:.1f}"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def bench_json(results: Sequence[Result]) -> dict[str, Any]:
    """For programs: rates in units of 10^9 per second, shares and parts from 0 to 1; of the first number of threads,
    and by `others` of each other one."""
    first, *others = results
    return {**_result_json(first, first), "others": [_result_json(r, first) for r in others]}


def _result_json(result: Result, first: Result) -> dict[str, Any]:
    limits = result.limits
    return {
        "model": result.model,
        "target": result.target,
        "threads": result.threads,
        "seed": result.seed,
        "random_inputs": list(result.random),
        "operations": result.operations,
        "gflops": _rounded(result.rate),
        "part_of_peak": result.part_of_peak,
        "programs": [{**_row_json(result, row), "gain": result.gain(first, row)} for row in result.rows],
        "limits": limits
        and {
            "gflops": _rounded(limits.operations),
            "memories": [
                {"name": m.name, "bytes": m.size, "gbytes_per_second": _rounded(m.rate)} for m in limits.memories
            ],
        },
        "steps": [{**_step_json(s), "gain": result.step_gain(first, s)} for s in result.steps],
        "no_steps": result.no_steps,
    }


def _row_json(result: Result, row: Row) -> dict[str, Any]:
    times = row.times
    return {
        "name": row.name,
        "version": row.version,
        "measured": times is not None,
        "reason": row.reason,
        **(times.json() if times else {"calls": 0, "median_ms": None, "p10_ms": None, "p90_ms": None}),
        "calls_per_second": times and 1000 / times.median,
        "relative_time": result.relative(row),
        "outputs": [
            {"name": d.name, "ok": d.ok, "max_abs": json_number(d.max_abs), "max_rel": json_number(d.max_rel)}
            for d in row.differences
        ],
    }


def _step_json(s: Measured) -> dict[str, Any]:
    return {
        "step": s.work.number,
        "kernel": s.work.kernel,
        "nodes": list(s.work.nodes),
        "ms": s.seconds * 1000,
        "share": s.share,
        "operations": s.work.operations,
        "bytes": s.work.bytes,
        "gflops": _rounded(s.operations_rate),
        "gbytes_per_second": _rounded(s.bytes_rate),
        "limit": s.limit,
        "least_ms": None if s.least is None else s.least * 1000,
        "part_of_limit": s.part,
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate / 1e9, 3)
