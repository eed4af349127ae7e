"""How kernels become loops on a target, and what they work in: stated by its backend before steps are ordered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlc.api.backend import Backend
from dlc.graph.structure import Call

if TYPE_CHECKING:
    from dlc.base.report import Report
    from dlc.graph.graph import Graph


def states_schedules(backend: Backend) -> bool:
    """Whether the backend has something to say about kernels."""
    return type(backend).schedules is not Backend.schedules


def with_schedules(graph: Graph, backend: Backend, report: Report) -> Graph:
    """The graph of kernels with their schedules on the backend's target, and the bytes that each of them works in."""
    kernels = {op.body.digest: op.body for each in graph.graphs for op in each.ops if isinstance(op, Call)}
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
        if schedule.text:
            of = f" ({' '.join(nodes[digest])})" if nodes[digest] else ""
            others = (f"not {candidate}, because {reason}" for candidate, reason in schedule.others)
            why = "; ".join(others) or ("given" if schedule.given else "the only candidate")
            takes = f", {in_words(schedule.cycles)} cycles" if schedule.cycles else ""
            report.missed(f"{digest[:SHOWN]}{of} as {schedule.text}{takes}", why)
    return stated(graph)


def in_words(cycles: float) -> str:
    """A number that is known roughly, with three digits: 1,940,000."""
    digits = max(0, len(str(int(cycles))) - 3)
    return f"{round(cycles, -digits):,.0f}"


SHOWN = 16
"""Digits of a kernel's digest that stand for it."""
