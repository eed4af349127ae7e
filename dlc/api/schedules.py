"""How kernels become loops on a target, and what they work in: stated by its backend before steps are ordered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dlc.api.backend import Backend, KernelSchedule
from dlc.graph.evaluate import is_constant
from dlc.graph.structure import Call
from dlc.kernel.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlc.base.report import Report
    from dlc.graph.graph import Graph


def states_schedules(backend: Backend) -> bool:
    """Whether the backend has something to say about kernels."""
    return type(backend).schedules is not Backend.schedules


def with_schedules(graph: Graph, backend: Backend, report: Report) -> Graph:
    """The graph of kernels with their schedules on the backend's target, and the bytes that each of them works in."""
    kernels = kernels_as_stored(graph)
    found = dict(zip(kernels, backend.schedules(tuple(kernels.values())), strict=True))

    def stated(graph: Graph) -> Graph:
        graph = graph.with_bodies(stated)
        own = dict.fromkeys(op.body.digest for op in graph.ops if isinstance(op, Call))
        workspaces = {digest: found[digest].workspace for digest in own if found[digest].workspace}
        return replace(
            graph, workspaces=workspaces, schedules={digest: found[digest].text for digest in own if found[digest].text}
        )

    nodes = {op.body.digest: each.origin(op) for each in graph.graphs for op in each.ops if isinstance(op, Call)}
    report.missed_as = "scheduled"
    for digest, schedule in found.items():
        if schedule.cycles or schedule.bytes:
            report.kernels[digest] = schedule.cycles, schedule.bytes
        if schedule.text:
            of = f" ({' '.join(nodes[digest])})" if nodes[digest] else ""
            others = (f"not {candidate}, because {reason}" for candidate, reason in schedule.others)
            measured = schedule.tuned is not None and schedule.tuned.state == "used"
            why = "; ".join(others) or ("measured" if measured else "given" if schedule.given else "the only candidate")
            takes = f", {in_words(schedule.cycles)} cycles" if schedule.cycles else ""
            report.missed(f"{digest[:SHOWN]}{of} as {schedule.text}{takes}", why)
    _note_tuned(found, report)
    return stated(graph)


def kernels_as_stored(graph: Graph) -> dict[str, Kernel]:
    """The kernels of a graph by digest; parameters that are constants in all calls are packed."""
    known: dict[str, bool] = {}
    kernels: dict[str, Kernel] = {}
    packed: dict[str, set[tuple[bool, ...]]] = {}
    for op in (op for each in graph.graphs for op in each.ops if isinstance(op, Call)):
        kernels.setdefault(op.body.digest, op.body)
        narrow = any(x.type.dtype.per_byte > 1 for x in op.operands)
        which = tuple(narrow and x.type.dtype.per_byte > 1 and is_constant(x, known) for x in op.operands)
        packed.setdefault(op.body.digest, set()).add(which)
    for digest, forms in packed.items():
        k = kernels[digest]
        if len(forms) == 1 and any(form := next(iter(forms))):
            params = tuple(replace(p, packed=each) for p, each in zip(k.params, form, strict=True))
            kernels[digest] = replace(k, params=params)
    return kernels


def _note_tuned(found: Mapping[str, KernelSchedule], report: Report) -> None:
    """Say how many kernels have schedules that were measured, and why others have not."""
    states = [s.tuned.state for s in found.values() if s.tuned is not None]
    if not states:
        return
    parts = [f"{states.count('used')} of {len(states)} kernels have measured schedules"]
    parts += [f"{count} {text}" for state, text in _NOT_TUNED.items() if (count := states.count(state))]
    report.note("; ".join(parts))
    for digest, schedule in found.items():
        if schedule.tuned is not None and schedule.tuned.state == "unfit":
            report.note(f"the estimate decides for {digest[:SHOWN]}: {schedule.tuned.reason}")


_NOT_TUNED: Final = {
    "unknown": "were not measured",
    "other-machine": "were measured for other machines only",
    "unfit": "have a measured schedule that does not apply any more",
}


def in_words(cycles: float) -> str:
    """A number that is known roughly, with three digits: 1,940,000."""
    digits = max(0, len(str(int(cycles))) - 3)
    return f"{round(cycles, -digits):,.0f}"


SHOWN = 16
"""Digits of a kernel's digest that stand for it."""
