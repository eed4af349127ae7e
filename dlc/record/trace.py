"""A record as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: events in Chrome's JSON format.

    build      the passes of the build as they took, or, where the cache had them, as they took when they ran
    program    the layers in their order, as measured or else as estimated, and the bytes of the arena that are live

Names and units: Trace Event Format (Google, 2016): times in microseconds, "X" complete events, "C" counters, "M" names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dlc.record.record import Function, Kernel, Layer, Memory, Record

Event = dict[str, Any]
_BUILD: Final = 1
"""Number of the process of the build; functions of the program follow."""
_MICROSECONDS: Final = 1000.0
"""In a millisecond."""
CYCLES: Final = 1000.0
"""Estimated cycles that a microsecond of the trace stands for, where nothing is measured: those of a core at 1 GHz."""


def trace(record: Record) -> dict[str, Any]:
    """The events, with what they are of in `otherData`."""
    events = [*_build(record)]
    for k, function in enumerate(record.functions):
        events += _function(record, function, _BUILD + 1 + k)
    about = {"model": record.model, "target": record.target, "dlc": record.dlc, "record": record.schema}
    return {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}


def _named(kind: str, name: str, process: int, thread: int = 0) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _complete(
    name: str, category: str, place: tuple[int, int], begin: float, length: float, more: Mapping[str, Any]
) -> Event:
    process, thread = place
    times = {"ts": round(begin, 3), "dur": round(length, 3)}
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread, **times, "args": more}


def _build(record: Record) -> Iterator[Event]:
    if not record.passes:
        return
    yield _named("process_name", "build", _BUILD)
    yield _named("thread_name", "passes", _BUILD)
    threads: dict[str, int] = {}
    ends: dict[str, float] = {}
    at = 0.0
    for step in record.passes:
        length = step.made_ms * _MICROSECONDS
        title = f"{step.function}: {step.title}" if step.function else step.title
        known = {"cached": step.cached, "ms in this build": step.milliseconds, **step.counts}
        yield _complete(title, "pass", (_BUILD, 0), at, length, known)
        for job in step.jobs:  # several run at once: what is known is how long each took, so they stand one by one
            if job.step not in threads:
                threads[job.step] = len(threads) + 1
                yield _named("thread_name", f"{job.step}, one after the other", _BUILD, threads[job.step])
            begin, took = max(at, ends.get(job.step, 0.0)), job.made_ms * _MICROSECONDS
            yield _complete(job.subject, job.step, (_BUILD, threads[job.step]), begin, took, {"cached": job.cached})
            ends[job.step] = begin + took
        at += length


def _function(record: Record, function: Function, process: int) -> Iterator[Event]:
    kernels = {k.digest: k for k in record.kernels}
    measured = any(layer.ms is not None for layer in function.layers)
    title = f"program {function.name}".rstrip()
    yield _named("process_name", title, process)
    yield _named("thread_name", "layers, measured" if measured else "layers, 1,000 estimated cycles a us", process)
    live: Mapping[int, int] = _live(function.memory, len(function.layers)) if function.memory else {}
    at = 0.0
    for layer in function.layers:
        kernel = kernels.get(layer.kernel)
        length = _length(layer, kernel, measured)
        name = ", ".join(layer.nodes) or layer.operation
        yield _complete(name, "layer", (process, 0), at, length, _facts(layer, kernel))
        if layer.number in live:
            yield _counter(process, at, live[layer.number])
        at += length
    if live:
        yield _counter(process, at, 0)


def _counter(process: int, at: float, size: int) -> Event:
    return {"ph": "C", "name": "arena, live bytes", "pid": process, "ts": round(at, 3), "args": {"bytes": size}}


def _length(layer: Layer, kernel: Kernel | None, measured: bool) -> float:
    """Microseconds."""
    if measured:
        return (layer.ms or 0.0) * _MICROSECONDS
    return kernel.cycles / CYCLES if kernel else 0.0


def _facts(layer: Layer, kernel: Kernel | None) -> Mapping[str, Any]:
    facts: dict[str, Any] = {
        "layer": layer.number,
        "computes": layer.operation,
        "gives": ", ".join(layer.gives),
        "operations": layer.operations,
        "bytes of weights": layer.constant_bytes,
        "other bytes": layer.moved_bytes,
        "workspace": layer.workspace,
    }
    if kernel:
        facts |= {"kernel": kernel.digest, "schedule": kernel.schedule, "estimated cycles": kernel.cycles}
        facts |= {"function": kernel.symbol, "source": f"{kernel.file}:{kernel.line}"} if kernel.symbol else {}
    return facts


def _live(memory: Memory, layers: int) -> Mapping[int, int]:
    """Layer → bytes of the arena that hold something while it runs; those that several share count once."""
    found: dict[int, int] = {}
    for k in range(layers):
        total = end = 0
        for offset, size in sorted((v.offset, v.size) for v in memory.values if v.begin <= k < v.end):
            total += max(0, offset + size - max(end, offset))
            end = max(end, offset + size)
        found[k] = total
    return found
