"""Measurements as records hold them: programs, limits and steps, for each number of threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlc.record.record import (
    MachineLimits,
    MemoryLimit,
    OutputDifference,
    PausedTimes,
    ProgramTimes,
    Record,
    Run,
    StepTimes,
)
from dlc.version import __version__

if TYPE_CHECKING:
    from dlc.api.profile import Limits
    from dlc.bench.result import Result, Row
    from dlc.bench.steps import Measured
    from dlc.bench.times import Times


def with_runs(record: Record | None, results: Sequence[Result]) -> Record:
    """A build's record with what was measured of the program; without one, of a program that was built before."""
    first = results[0]
    record = record or Record(first.model, first.target, dlc=__version__)
    runs = tuple(run_of(r, first) for r in results)
    times = {s.step: s.ms for s in runs[0].steps}
    if not record.functions:
        return replace(record, runs=runs)
    main, *others = record.functions
    measured = replace(main, layers=tuple(replace(layer, ms=times.get(layer.number)) for layer in main.layers))
    return replace(record, runs=runs, functions=(measured, *others))


def run_of(result: Result, first: Result) -> Run:
    """What was measured with one number of threads, and what it gains over the first."""
    return Run(
        result.threads,
        result.target,
        result.seed,
        tuple(result.random),
        result.operations,
        _giga(result.rate),
        result.part_of_peak,
        tuple(_program(result, row, first) for row in result.rows),
        _limits(result.limits) if result.limits else None,
        tuple(_step(s, result.step_gain(first, s)) for s in result.steps),
        result.no_steps,
        result.pause * 1000 if result.pause else None,
    )


def _limits(limits: Limits) -> MachineLimits:
    memories = tuple(MemoryLimit(m.name, m.size, round(m.rate / 1e9, 3)) for m in limits.memories)
    return MachineLimits(round(limits.operations / 1e9, 3), memories)


def _program(result: Result, row: Row, first: Result) -> ProgramTimes:
    times = row.times
    return ProgramTimes(
        row.name,
        row.version,
        times is not None,
        row.reason,
        len(times.seconds) if times else 0,
        times.median if times else None,
        times.p10 if times else None,
        times.p90 if times else None,
        1000 / times.median if times else None,
        result.relative(row),
        tuple(OutputDifference(d.name, bool(d.ok), _number(d.max_abs), _number(d.max_rel)) for d in row.differences),
        result.gain(first, row),
        _paused(result, row, row.paused, first) if row.paused else None,
    )


def _paused(result: Result, row: Row, times: Times, first: Result) -> PausedTimes:
    relative, gain = result.relative(row, paused=True), result.gain(first, row, paused=True)
    return PausedTimes(len(times.seconds), times.median, times.p10, times.p90, relative, gain)


def _step(s: Measured, gain: float | None) -> StepTimes:
    return StepTimes(
        s.work.number,
        s.work.kernel,
        s.work.nodes,
        s.seconds * 1000,
        s.share,
        s.work.macs,
        s.work.operations,
        s.work.bytes,
        _giga(s.operations_rate),
        _giga(s.bytes_rate),
        s.limit,
        None if s.least is None else s.least * 1000,
        s.part,
        gain,
    )


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return float(value) if math.isfinite(value) else str(float(value))


def _giga(rate: float | None) -> float | None:
    return None if rate is None else round(rate / 1e9, 3)
