"""What has to hold in a record beside the types of its fields, as a file may come from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.record.record import Memory, Node, Record, Run


class Unfit(ValueError):
    """A record is not what it should be: where, and what stands there."""


def check(record: Record) -> None:
    """Raise Unfit at the first place that what reads records could not do anything with."""
    for problem in _problems(record):
        raise Unfit(problem)


def _problems(record: Record) -> Iterator[str]:
    yield from _nodes("graph", record.graph)
    for k, f in enumerate(record.functions):
        yield from _nodes(f"functions[{k}].graph", f.graph)
        if [layer.number for layer in f.layers] != list(range(len(f.layers))):
            yield f"functions[{k}].layers are not numbered from 0 on"
        if f.memory:
            yield from _memory(f"functions[{k}].memory", f.memory)
    for k, run in enumerate(record.runs):
        yield from _run(f"runs[{k}]", run)


def _nodes(where: str, nodes: Sequence[Node]) -> Iterator[str]:
    for k, node in enumerate(nodes):
        if any(not 0 <= x < k for x in node.reads):
            yield f"{where}[{k}].reads names a node that does not stand before it"


def _memory(where: str, memory: Memory) -> Iterator[str]:
    if memory.arena < 0 or memory.bound < 0:
        yield f"{where} has a negative size"
    for k, v in enumerate(memory.values):
        if not (0 <= v.begin < v.end and v.size >= 0 and 0 <= v.offset <= memory.arena - v.size):
            yield f"{where}.values[{k}] does not lie in the arena"


def _run(where: str, run: Run) -> Iterator[str]:
    if not run.programs or not run.programs[0].median_ms:
        yield f"{where} has no times of dlc's program"
    for p in run.programs:
        times = (p.median_ms, p.p10_ms, p.p90_ms, p.calls_per_second, p.relative_time)
        if p.measured and any(t is None or t <= 0 for t in times):
            yield f"{where} has a program without times"
        if p.after_pause and (run.pause_ms is None or run.pause_ms <= 0 or p.after_pause.median_ms <= 0):
            yield f"{where} has calls after no pause, or without times"
        for d in p.outputs:
            if any(isinstance(x, str) and x not in ("inf", "-inf", "nan") for x in (d.max_abs, d.max_rel)):
                yield f"{where} has a difference that is no number"
    limits = run.limits
    if limits and (limits.gflops <= 0 or any(m.gbytes_per_second <= 0 for m in limits.memories)):
        yield f"{where}.limits has a rate that is not positive"
    if any(not 0 <= s.share <= 1 or s.ms < 0 for s in run.steps):
        yield f"{where}.steps has a time or a share that cannot be"
