"""What a step leaves, checked by the level that it says it leaves: no step is trusted for its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.level import Level

_TOLD = 4
"""Problems of a state that are reported one by one: a step that is wrong is often wrong everywhere."""


def check_left(state: Any, level: Level, step: str) -> None:
    """Check what a step leaves.

    Raises:
        DlcError: (BUG) of the step: it gives something else than it says, or a graph that breaks its own rules,
            reported with the nodes of the model and the nests that it concerns.
    """
    from dlc.api.plan import Plan
    from dlc.graph.graph import Graph
    from dlc.graph.verify import verify

    graph = state.graph if level == "plan" and isinstance(state, Plan) else state
    if not isinstance(graph, Graph) or (level == "plan" and graph is state):
        what = "a plan" if level == "plan" else f"a graph of {level}"
        raise error(
            "invalid-state", f"{step} returned {type(state).__name__} instead of {what}", exit_code=ExitCode.BUG
        )
    if not (problems := verify(graph, level)):
        return
    *first, last = problems[:_TOLD]
    others = len(problems) - len(first) - 1
    notes = (*last.notes, f"and {others} more of this kind") if others else last.notes
    last = replace(last, notes=notes, help=f"{step} left it so, which is a bug: please report it with the model")
    raise DlcError(*first, last, exit_code=ExitCode.BUG)
