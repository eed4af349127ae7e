"""What a backend refuses: ops that it cannot build, and plans that do not fit into its memory.

Everything is found before anything is written and reported at once: op, how often, where, why, and what would help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dlc.api.backend import Backend, Reason
from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error
from dlc.graph.evaluate import is_constant
from dlc.graph.structure import Input

if TYPE_CHECKING:
    from dlc.api.backend import Region
    from dlc.api.plan import Plan
    from dlc.graph.graph import Graph
    from dlc.graph.op import Op

_NAMED = 3
"""Nodes that a message names; the others are counted."""


def asks_about_ops(backend: Backend) -> bool:
    """Whether the backend has something to say about single ops."""
    return type(backend).accepts is not Backend.accepts


def check_ops(graph: Graph, backend: Backend) -> None:
    """Raises DlcError (MODEL) with one diagnostic per kind of op and reason that `backend.accepts` refuses.

    Ops that depend on constants only are evaluated while compiling and are never asked about.
    """
    memo: dict[str, bool] = {}
    refused: dict[tuple[str, Reason], list[Op]] = {}
    every = (op for each in graph.graphs for op in each.ops)
    asked = [op for op in every if not isinstance(op, Input) and not is_constant(op, memo)]
    for op, answer in zip(asked, backend.accepts_all(asked), strict=True):
        if answer is not True:
            reason = answer if isinstance(answer, Reason) else Reason("the target has no such operation")
            refused.setdefault((op.text_name, reason), []).append(op)
    if refused:
        raise DlcError(*(_refusal(graph, backend, name, reason, ops) for (name, reason), ops in refused.items()))


def check_regions(plan: Plan, backend: Backend) -> None:
    """Raises DlcError: (LIMIT) the plan takes more memory than there is; (USAGE) a value is where it cannot be."""
    regions = backend.regions()
    for name, size in plan.regions.items():
        if name not in regions:
            raise error("no-such-memory", f"{backend.name} has no memory called {name}", exit_code=ExitCode.USAGE)
        limit = regions[name].limit
        if limit is not None and size > limit:
            raise error(
                "memory-limit",
                f"{name} of {backend.name} holds {limit} bytes, the program needs {size}: {size - limit} too many",
                help="use a smaller batch or input; `dlc build --html` shows the live values over time",
                exit_code=ExitCode.LIMIT,
            )
    _check_alignment(plan, backend, regions)


def _check_alignment(plan: Plan, backend: Backend, regions: Mapping[str, Region]) -> None:
    slots = (("one at", s.region, s.offset) for p in plan.plans for s in (*p.slots.values(), *p.workspaces.values()))
    ends = (("a region that ends at", name, size) for name, size in plan.regions.items())
    for what, region, at in (*slots, *ends):
        align = regions[region].align
        if at % align:
            raise error(
                "misaligned",
                f"{backend.name} needs values at multiples of {align} bytes, the plan has {what} byte {at}",
                help=f"--set plan-memory.align={align}",
                exit_code=ExitCode.USAGE,
            )


def _refusal(graph: Graph, backend: Backend, name: str, reason: Reason, ops: list[Op]) -> Diagnostic:
    origins = list(dict.fromkeys(node for op in ops for node in graph.origin(op)))
    nodes = ", ".join(origins[:_NAMED]) + (f" and {len(origins) - _NAMED} more" if len(origins) > _NAMED else "")
    times = f"{len(ops)} times" if len(ops) > 1 else "once"
    return Diagnostic(
        "unsupported-op",
        f"{backend.name} cannot build {name} ({times}): {reason.text}",
        location=Location(node=nodes) if nodes else None,
        help=reason.help,
    )
